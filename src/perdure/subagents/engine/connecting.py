"""Finding the host of an execution: one that was just started, or one that an earlier orchestrator left running."""

import asyncio
import time
from typing import Final

from perdure.subagents.host.link import HostGone, HostLink
from perdure.subagents.paths import StateRoot
from perdure.subagents.processes import is_running
from perdure.subagents.state import Execution

CONNECT_SECONDS: Final = 30.0
"""How long a process may take until it listens."""
HELLO_SECONDS: Final = 5.0
"""How long one that listens may take to say who it is; a stopped process says nothing."""
CONNECT_PAUSE: Final = 0.02


async def connected(root: StateRoot, execution: Execution, patience: float = CONNECT_SECONDS) -> HostLink | None:
    """A link to the host that the row means: its number and start time have to fit. None if it has ended, or does not
    answer in time."""
    deadline = time.monotonic() + patience
    while True:
        try:
            async with asyncio.timeout(max(HELLO_SECONDS, deadline - time.monotonic())):
                link = await HostLink.connect(root, execution.exec)
        except (OSError, HostGone, TimeoutError):
            if execution.pid is not None and not is_running(execution.pid, execution.started or ""):
                return None
            if time.monotonic() >= deadline:
                return None
            await asyncio.sleep(CONNECT_PAUSE)
            continue
        hello = link.hello
        if execution.pid in (None, hello.pid) and execution.started in (None, hello.started):
            return link
        await link.disconnect()
        return None
