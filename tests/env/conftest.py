"""What the tests of other places share: a real SSH server, and a real container."""

import os
from collections.abc import Iterator

import pytest

from tests.env import engine as engines
from tests.env import sshd


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Server]:
    """A real SSH server on loopback. Skipped where there can be none; continuous integration has one."""
    why = sshd.why_no_server()
    if why is not None and os.environ.get("CI"):
        pytest.fail(why)
    if why is not None:
        pytest.skip(why)
    running = sshd.start(tmp_path_factory.mktemp("sshd"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engines.Engine]:
    """A container of a real engine that shares the tests' folder. Skipped, with the reason, where there can be none."""
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        try:
            running = engines.start(folder, tmp_path_factory.mktemp("engine-settings"), patch)
        except engines.NoEngine as why:
            pytest.skip(str(why))
        yield running
        running.stop()
