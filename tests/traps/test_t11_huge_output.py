"""However much a tool writes, memory, the store and the next request stay small, and who watches is served."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MEMORY_MB = 300
"""What the kernel lets the process have as data of its own (RLIMIT_DATA: heap and private writable mappings, whether
touched or not), and what may ever be resident. Not the address space: that also counts what is only reserved, the
stacks of threads and the text of libraries, which depends on the machine and not on what a tool writes. What was
resident is read as VmHWM, which an exec resets: ru_maxrss would begin with that of the process that runs the tests."""

AGENT = """
import asyncio, json, re, resource, sys
from perdure import Extension, Harness, Registry
from perdure.agent.documents import LiveDoc
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import coding_tools

spam = Extension("spam")

@spam.tool
async def pieces(ctx, count: int) -> str:
    '''Write many tiny chunks.'''
    for number in range(count):
        ctx.output(f"{number} ")
        if number % 1000 == 0:
            await asyncio.sleep(0)
    return "last"

@spam.tool
async def report(ctx) -> dict:
    '''Return 20 MB of JSON.'''
    return {"rows": [{"number": number, "text": "x" * 80} for number in range(200_000)], "end": "last"}

@spam.tool
async def essay(ctx) -> str:
    '''Return 50 MB of text.'''
    return "x" * 50_000_000 + "last"

async def main(tool, arguments, path):
    model = ScriptedModel([call(tool, arguments), say("end")], context_window=100_000)
    async with Harness.open(path, registry=Registry([coding_tools, spam]), models=model) as harness:
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
        "asked": max(len(str(request)) for request in model.requests),
        "resident": int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024}))

resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]) * 2**20,) * 2)
asyncio.run(main(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]))
"""

COMMANDS = {
    "200 MB on both streams": (
        "head -c 100000000 /dev/zero | tr '\\0' 'o'; head -c 100000000 /dev/zero | tr '\\0' 'e' >&2; sleep 1; echo last"
    ),
    "one line of 50 MB": "head -c 50000000 /dev/zero | tr '\\0' 'x'; echo; echo last",
    "binary": "head -c 20000000 /dev/urandom; echo; echo last",
    "many tiny lines": "yes | head -n 5000000; echo last",
}


def run(folder: Path, tool: str, **arguments: Any) -> dict[str, Any]:
    """What an agent says after one call, under the limit."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", AGENT, str(MEMORY_MB), tool, json.dumps(arguments), str(folder / "a.db")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["answer"] == "end"
    assert told["frames"] > 0
    assert told["resident"] < MEMORY_MB
    assert told["asked"] < 300_000, "characters of the largest request: the window takes 100,000 tokens"
    assert sum(file.stat().st_size for file in folder.glob("a.db*")) < 8_000_000
    return told


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_writes_without_end_stays_within_bounds(name: str, tmp_path: Path) -> None:
    told = run(tmp_path, "bash", command=COMMANDS[name], timeout=100)
    assert len(told["result"]) < 60_000
    assert "last" in told["result"][-200:]


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["report", "essay"])
def test_a_tool_that_returns_tens_of_megabytes_keeps_head_and_tail_and_says_what_was_left_out(
    tool: str, tmp_path: Path
) -> None:
    told = run(tmp_path, tool)
    assert len(told["result"]) < 250_000
    assert told["result"].endswith('"last"}' if tool == "report" else "last")
    assert "left out" in told["result"]


@pytest.mark.slow
def test_a_hundred_thousand_tiny_chunks_stay_within_bounds(tmp_path: Path) -> None:
    assert run(tmp_path, "pieces", count=100_000)["result"] == "last"


@pytest.mark.long
def test_a_million_tiny_chunks_stay_within_bounds(tmp_path: Path) -> None:
    assert run(tmp_path, "pieces", count=1_000_000)["result"] == "last"


@pytest.mark.slow
def test_the_limit_is_one_that_the_kernel_enforces() -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (300 * 2**20,) * 2); bytearray(310 * 2**20)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MemoryError" in done.stderr
