"""The public suite for execution environments. Whoever writes one runs it with three lines:

    class TestMyEnv(EnvConformance):
        def make_env(self, folder: Path) -> ExecutionEnv:
            return MyEnv(cwd=str(folder))

The environment's `cwd` is an empty folder of a POSIX system with a shell, `sleep`, `setsid` and `git`. Needs pytest and
pytest-asyncio.
"""

import pytest

from perdure.testing.env_exec_cases import ContainmentCases, ExecCases
from perdure.testing.env_file_cases import FileCases, SearchCases, WatchCases

__all__ = ["EnvConformance"]


@pytest.mark.asyncio
class EnvConformance(FileCases, SearchCases, WatchCases, ExecCases, ContainmentCases):
    """Everything that the environment protocol promises. Subclass it and write `make_env`."""
