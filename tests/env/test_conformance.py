"""Every environment of ours passes the public suite."""

from pathlib import Path

from perdure.env.local import LocalEnv
from perdure.env.protocol import ExecutionEnv
from perdure.testing.env_conformance import EnvConformance


class TestLocal(EnvConformance):
    def make_env(self, folder: Path) -> ExecutionEnv:
        return LocalEnv(folder)
