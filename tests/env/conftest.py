"""The server that the tests of SSH share."""

import os
from collections.abc import Iterator

import pytest

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
