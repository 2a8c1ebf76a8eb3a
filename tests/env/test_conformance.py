"""Every environment of ours passes the public suite."""

from pathlib import Path

import pytest

from perdure.env.local import LocalEnv
from perdure.env.protocol import ExecutionEnv
from perdure.env.ssh import SshEnv
from perdure.testing.env_conformance import EnvConformance
from tests.env.sshd import Server


class TestLocal(EnvConformance):
    def make_env(self, folder: Path) -> ExecutionEnv:
        return LocalEnv(folder)


@pytest.mark.slow
class TestSsh(EnvConformance):
    @pytest.fixture(autouse=True)
    def reach(self, server: Server) -> None:
        self.server = server

    def make_env(self, folder: Path) -> ExecutionEnv:
        return SshEnv(self.server.address, str(folder), **self.server.login)
