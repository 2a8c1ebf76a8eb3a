"""The coding tools, watched at work: each call as it starts, what it prints meanwhile, how it ends."""

import asyncio
import tempfile
from pathlib import Path

from perdure import Harness, Registry
from perdure.events import RunEnd, ToolEnd, ToolStart, ToolUpdate
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import coding_tools


async def main() -> None:
    folder = Path(tempfile.mkdtemp())
    model = ScriptedModel(
        [
            call("write", {"path": "greet.py", "content": "print('hello')\n"}),
            call("bash", {"command": "for i in 1 2 3; do echo step $i; sleep 0.3; done; python3 greet.py"}),
            call("edit", {"path": "greet.py", "old_text": "hello", "new_text": "good morning"}),
            call("read", {"path": "missing.py"}),
            say("It greets now."),
        ]
    )
    async with Harness.open("memory:", registry=Registry([coding_tools]), models=model) as harness:
        root = await harness.root(model="scripted:model", cwd=str(folder))
        async with root.events() as events:
            await root.submit("Write a greeting")
            shown: dict[int, str] = {}
            async for event in events:
                match event:
                    case ToolStart(name=name, arguments=arguments):
                        print(f"> {name} {arguments.get('path', 'a command')}")
                    case ToolUpdate(task=task, output=output):
                        shown[task] = shown.get(task, "") + output
                    case ToolEnd(name=name, task=task, is_error=failed):
                        seen = "step 1" in shown.get(task, "")
                        print(f"  {name} {'failed' if failed else 'ok'}{', seen while it ran' if seen else ''}")
                    case RunEnd():
                        break
    print((folder / "greet.py").read_text().strip())


asyncio.run(main())
