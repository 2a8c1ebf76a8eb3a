"""The `env=` argument: a function, an environment, or nothing."""

from typing import Any

from perdure.base.lazy import load
from perdure.env.protocol import ExecutionEnv


def env_function(env: Any) -> Any:
    """The `env=` argument as a function of conversation id and cwd."""
    if env is None:
        return lambda conversation, cwd: load("perdure.env.local:LocalEnv")(cwd)
    if callable(env):
        return env
    return lambda conversation, cwd: _Shared(env)


class _Shared:
    """One environment for all calls: closing it after a call does nothing."""

    def __init__(self, env: ExecutionEnv) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    async def close(self) -> None:
        """The environment belongs to the host program."""
