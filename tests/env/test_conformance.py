"""Every environment of ours passes the public suite."""

from pathlib import Path

import pytest

from perdure.env.container import ContainerEnv
from perdure.env.local import LocalEnv
from perdure.env.protocol import ExecutionEnv
from perdure.env.ssh import SshEnv
from perdure.testing.env_conformance import EnvConformance
from tests.env.engine import Engine
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


@pytest.mark.slow
class TestContainer(EnvConformance):
    @pytest.fixture(autouse=True)
    def reach(self, engine: Engine) -> None:
        self.engine = engine

    def make_env(self, folder: Path) -> ExecutionEnv:
        return ContainerEnv(self.engine.container, str(folder), engine=self.engine.name)
