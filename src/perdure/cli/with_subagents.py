"""A session whose agent has the `subagents` tool: told of its work while the command runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from perdure.cli.show import note, say
from perdure.harness.conversation import Conversation
from perdure.harness.harness import Harness
from perdure.subagents import rows
from perdure.subagents.client import reading
from perdure.subagents.paths import StateRoot
from perdure.subagents.state import LiveDoc
from perdure.subagents.tool import deliver_notices, open_for, parent_id, subagents_tool

LOOK_SECONDS: Final = 0.25


@asynccontextmanager
async def beside(harness: Harness) -> AsyncIterator[None]:
    """Install the tool, and deliver what subagents have to say."""
    harness.agent.registry.install(subagents_tool())
    async with deliver_notices(harness):
        yield


async def stay(harness: Harness, root: Conversation) -> None:
    """Wait until the subagents of this session have ended and the agent has heard of it; print what it says then."""
    session, home = await parent_id(harness.session), StateRoot()
    working = await _working(home, session)
    if not working and not await open_for(home, session):
        return
    note(f"subagents at work: {', '.join(working)} (Ctrl-C leaves them to it; `perdure agents status`)")
    while await _working(home, session) or await open_for(home, session):  # noqa: ASYNC110 - another process works
        await asyncio.sleep(LOOK_SECONDS)
    await root.wait_idle()
    say((await root.messages())[-1].text)


async def _working(home: StateRoot, session: str) -> list[str]:
    async with reading(home) as reader:
        if reader is None:
            return []
        found = [await rows.workflow(reader, wid) for wid in await rows.keys(reader, LiveDoc)]
    return [one.wid for one in found if one is not None and one.origin == session and not one.held]
