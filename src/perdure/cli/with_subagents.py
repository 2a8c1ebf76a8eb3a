"""A session whose agent has the `subagents` tool: told of its work while the command runs."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import click

from perdure.cli.show import note, say
from perdure.harness.conversation import Conversation
from perdure.harness.harness import Harness
from perdure.subagents.paths import StateRoot
from perdure.subagents.tool import deliver_notices, live_workflows, open_for, parent_id, subagents_tool

LOOK_SECONDS: Final = 0.25
ENDINGS: Final = (signal.SIGTERM, signal.SIGHUP)
"""A terminal that is closed, and a machine that shuts down, quit the session like Ctrl-C does."""


@asynccontextmanager
async def beside(harness: Harness) -> AsyncIterator[None]:
    """Install the tool, and deliver what subagents have to say."""
    harness.agent.registry.install(subagents_tool())
    session, home = await parent_id(harness.session), StateRoot()
    os.environ["PERDURE_SESSION"] = session  # for its processes: what they start is listed with it
    if held := await live_workflows(home, session, held=True):
        note(f"held since this session was left: {', '.join(held)} (`perdure agents resume` goes on with them)")
    loop, working, told = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()

    def end() -> None:
        told.set()
        if working is not None:
            working.cancel()

    for number in ENDINGS:
        loop.add_signal_handler(number, end)
    try:
        async with deliver_notices(harness):
            yield
    except asyncio.CancelledError:
        if told.is_set():
            raise click.Abort from None
        raise
    finally:
        for number in ENDINGS:
            loop.remove_signal_handler(number)


async def stay(harness: Harness, root: Conversation) -> None:
    """Wait until the subagents of this session have ended and the agent has heard of it; print what it says then."""
    session, home = await parent_id(harness.session), StateRoot()
    working = await live_workflows(home, session)
    if not working and not await open_for(home, session):
        return
    note(f"subagents at work: {', '.join(working)} (Ctrl-C holds them; `perdure agents status`)")
    # Another process works: nothing here tells when it is through.
    while await live_workflows(home, session) or await open_for(home, session):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)
    await root.wait_idle()
    say((await root.messages())[-1].text)
