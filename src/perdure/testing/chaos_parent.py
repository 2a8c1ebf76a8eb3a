"""A parent session in a process of its own: starts a workflow through the `subagents` tool, and hears what comes of it.

    python -m perdure.testing.chaos_parent <folder>

The folder holds `run.json`, what the tool is called with; the session is `parent.db`.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from perdure import Harness, Registry, ToolResultMessage
from perdure.models.protocol import ModelRequest
from perdure.subagents.paths import StateRoot
from perdure.subagents.tool import deliver_notices, parent_id, subagents_tool
from perdure.testing.scripted_model import ScriptedModel, call, say

NOTICE = "[subagents:"


async def main(folder: Path) -> None:
    """Run until killed."""
    given = json.loads((folder / "run.json").read_text())

    def turn(request: ModelRequest) -> Any:
        if str(request.messages[-1].text).startswith(NOTICE):
            return say("Heard.")
        done = any(isinstance(message, ToolResultMessage) for message in request.messages)
        return say("Started.") if done else call("subagents", given)

    root = StateRoot()
    async with (
        Harness.open(
            folder / "parent.db", registry=Registry([subagents_tool(root)]), models=ScriptedModel(turn)
        ) as harness,
        deliver_notices(harness, root),
    ):
        (folder / "parent.id").write_text(await parent_id(harness.session))
        session = await harness.root(model="scripted:parent")
        await (await session.submit("Go", request_id="go")).wait()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
