"""A coding turn: read, edit and run in a real git repository. Everything a command starts ends with it."""

import asyncio
import subprocess
import tempfile
from pathlib import Path

from perdure import Harness, Registry
from perdure.models.messages import ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import coding_tools


def scratch_repository() -> Path:
    path = Path(tempfile.mkdtemp())
    (path / "add.py").write_text("def add(a, b):\n    return a - b\n\nassert add(2, 2) == 4\n")
    subprocess.run(["git", "init", "-q"], cwd=path, check=True)
    subprocess.run(["git", "add", "."], cwd=path, check=True)
    return path


async def main() -> None:
    repository = scratch_repository()
    model = ScriptedModel(
        [
            [call("read", {"path": "add.py"}), call("bash", {"command": "python3 add.py 2>&1 | tail -1"})],
            call("edit", {"path": "add.py", "old_text": "a - b", "new_text": "a + b"}),
            call("edit", {"path": "add.py", "old_text": "a - b", "new_text": "a + b"}),
            call("bash", {"command": "sleep 300 & python3 add.py && echo passed; git diff --stat | cat"}),
            say("Fixed: it subtracted."),
        ]
    )
    async with Harness.open("memory:", registry=Registry([coding_tools]), models=model) as harness:
        root = await harness.root(model="scripted:model", cwd=str(repository))
        answer = await (await root.submit("Make add.py pass")).wait()
        for message in await root.messages():
            if isinstance(message, ToolResultMessage):
                text = str(message.content).strip().splitlines()
                print(f"{message.name:<5}{'error' if message.is_error else 'ok':<6}{text[0]}")
        print(answer.text, (repository / "add.py").read_text().splitlines()[1].strip())


asyncio.run(main())
