"""What the cases of the environment suite share: the environment under test, and commands run to their end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest_asyncio

from perdure.env.protocol import ExecEnd, ExecutionEnv

PATIENCE_SECONDS: Final = 10.0
"""Within this a command that should end has ended, on a busy machine too."""


class EnvSuite:
    """The environment under test. `make_env` is the one thing that a user of the suite writes."""

    def make_env(self, folder: Path) -> ExecutionEnv:
        """An environment whose `cwd` is an empty folder; `folder` is one of this machine that it may use."""
        raise NotImplementedError("a subclass of EnvConformance says how its environment is made")

    @pytest_asyncio.fixture
    async def env(self, tmp_path: Path) -> AsyncIterator[ExecutionEnv]:
        """The environment, closed afterwards."""
        made = self.make_env(tmp_path)
        yield made
        await made.close()


async def run(
    env: ExecutionEnv, command: str | Sequence[str], *, variables: dict[str, str] | None = None, **options: Any
) -> tuple[bytes, bytes, ExecEnd]:
    """Run a command to its end: what it wrote to either stream, and how it ended."""
    out, err = bytearray(), bytearray()
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with await env.exec(command, env=variables, **options) as execution:
            async for chunk in execution:
                (out if chunk.stream == "stdout" else err).extend(chunk.data)
            end = await execution.wait()
    return bytes(out), bytes(err), end


async def beats(env: ExecutionEnv, name: str) -> bool:
    """Whether something still writes to the file: it is looked at twice, and the second time it has not grown."""
    before = len(await env.read(name))
    await asyncio.sleep(0.3)
    return len(await env.read(name)) > before


def beating(name: str, prefix: str = "") -> str:
    """Shell text for a process that writes to the file ten times a second, for a minute."""
    return f"{prefix} sh -c 'for i in $(seq 600); do echo x >> {name}; sleep 0.1; done'"
