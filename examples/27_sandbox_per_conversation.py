"""Every conversation lives in a place of its own: `env` is asked for each tool call, with the conversation and its cwd.

Here the places are folders of this machine. `SshEnv(host, cwd)` or `ContainerEnv(container, cwd)` in the same function
puts a conversation on another machine or into a container; the harness stays where it is.
"""

import asyncio
import tempfile
from pathlib import Path

from perdure import Harness, Registry
from perdure.env.local import LocalEnv
from perdure.models.messages import ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import coding_tools, search_tools


async def main(folder: Path) -> None:
    asked: list[tuple[int, str | None]] = []

    async def env(conversation: int, cwd: str | None) -> LocalEnv:
        place = folder / f"sandbox-{conversation}"
        place.mkdir(exist_ok=True)  # idempotent: after a crash the same conversation gets the same place
        asked.append((conversation, cwd))
        return LocalEnv(place / (cwd or "."))

    turns = [
        call("write", {"path": "notes/idea.txt", "content": "a secret of mine\n"}),
        call("grep", {"pattern": "secret"}),
        say("Kept."),
        call("grep", {"pattern": "secret"}),
        say("There is nothing here."),
    ]
    registry = Registry([coding_tools, search_tools])
    async with Harness.open("memory:", registry=registry, models=ScriptedModel(turns), env=env) as harness:
        root = await harness.root(model="scripted:model")
        answer = await (await root.submit("Keep my idea")).wait()
        guest = await root.fork(answer.entry_id, key="guest")
        await guest.configure(cwd="work")
        (folder / f"sandbox-{guest.id}" / "work").mkdir(parents=True)
        await (await guest.submit("What do you find?")).wait()
        print("asked once for each call:", [(id == root.id, cwd) for id, cwd in asked])
        for name, conversation in (("root", root), ("guest", guest)):
            results = [m for m in await conversation.messages() if isinstance(m, ToolResultMessage)]
            print(f"{name}:", results[-1].content)
        kept = await LocalEnv(folder).glob("**")
        print("kept by the root alone:", kept.items == (f"sandbox-{root.id}/notes/idea.txt",))


with tempfile.TemporaryDirectory() as scratch:
    asyncio.run(main(Path(scratch)))
