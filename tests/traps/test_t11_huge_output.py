"""However much a command writes, memory, the store and the next request stay small, and who watches is served."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = """
import asyncio, json, resource, sys
from perdure import Harness, Registry
from perdure.agent.documents import LiveDoc
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import coding_tools

async def main(command, path):
    model = ScriptedModel([call("bash", {"command": command, "timeout": 100}), say("end")], context_window=100_000)
    async with Harness.open(path, registry=Registry([coding_tools]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        frames = 0
        async def watch():
            nonlocal frames
            async with harness.watch_document(LiveDoc, root.id) as live:
                async for _ in live:
                    frames += 1
        watching = asyncio.create_task(watch())
        answer = await (await root.submit("go")).wait()
        watching.cancel()
        result = str((await root.messages())[-2].content)
        print(json.dumps({"answer": answer.text, "result": result, "frames": frames,
            "stored": sum(len(e.messages) + len(e.data) for e in await root.entries())}))

resource.setrlimit(resource.RLIMIT_AS, (600 * 2**20, 600 * 2**20))
asyncio.run(main(*sys.argv[1:]))
"""
"""Address space is limited, not only what is resident: the interpreter and its libraries take some 300 MB of it."""

COMMANDS = {
    "200 MB on both streams": (
        "head -c 100000000 /dev/zero | tr '\\0' 'o'; head -c 100000000 /dev/zero | tr '\\0' 'e' >&2; sleep 1; echo last"
    ),
    "one line of 50 MB": "head -c 50000000 /dev/zero | tr '\\0' 'x'; echo; echo last",
    "binary": "head -c 20000000 /dev/urandom; echo; echo last",
    "many tiny lines": "yes | head -n 5000000; echo last",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_writes_without_end_stays_within_bounds(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", AGENT, COMMANDS[name], str(tmp_path / "a.db")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["answer"] == "end"
    assert told["frames"] > 0
    assert len(told["result"]) < 60_000
    assert "last" in told["result"][-200:]
    assert told["stored"] < 150_000
    assert sum(file.stat().st_size for file in tmp_path.glob("a.db*")) < 8_000_000
