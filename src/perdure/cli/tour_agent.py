"""The agent of the tour: a scripted model at work on a scratch repository, with a deployment that must happen once.

Run as a process of its own, so that it can be killed: `python -m perdure.cli.tour_agent FOLDER`.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.harness.harness import Harness
from perdure.harness.submission import Answer
from perdure.models.messages import ToolResultMessage
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel
from perdure.testing.turns import Turn, call, progress, say
from perdure.tools import coding_tools

REQUEST: Final = "Fix the greeting, test it, and deploy it."
REQUEST_ID: Final = "tour-1"


def mark(folder: Path, what: str) -> None:
    """One line in a ledger outside the store, on the disk before anything goes on: what really happened."""
    descriptor = os.open(folder / "ledger.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{what} {os.getpid()}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


def ledger(folder: Path) -> list[str]:
    """What happened, in order: words only."""
    path = folder / "ledger.txt"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def extension(folder: Path) -> Extension:
    """The deployment: it takes a while, and doing it twice would be a disaster, so it is not safe to replay."""
    ops = Extension("ops")

    @ops.tool(replay="unsafe")
    async def deploy(ctx: Any) -> str:
        """Deploy what is in the repository."""
        mark(folder, "deploy")
        ctx.output("deploying …\n")
        await asyncio.sleep(0 if "deployed-before" in os.environ.get("PERDURE_TOUR", "") else 60)
        return "deployed"

    @ops.tool(replay="safe")
    async def deployments(ctx: Any) -> str:
        """How often was it deployed?"""
        mark(folder, "look")
        return f"{ledger(folder).count('deploy')} deployment"

    return ops


def turns(folder: Path) -> Any:
    """The script, told by how far the conversation has come: a reopened process goes on where it was."""
    script: list[Turn] = [
        call("read", {"path": "hello.py"}),
        call("edit", {"path": "hello.py", "old_text": "Helo", "new_text": "Hello"}),
        call("bash", {"command": "python3 hello.py && git diff --stat"}),
        call("deploy", {}),
    ]

    def turn(request: ModelRequest) -> Turn:
        mark(folder, "request")
        done = progress(request)
        if done < len(script):
            return script[done]
        last = [message for message in request.messages if isinstance(message, ToolResultMessage)][-1]
        if str(last.content).startswith("interrupted"):
            return call("deployments", {})  # the harness told it: find out instead of doing it again
        mark(folder, "answer")
        return say("The greeting is fixed and tested, and it was deployed exactly once.")

    return turn


def open_tour(folder: Path) -> Any:
    """The harness of the tour, on the same store in every process."""
    model = ScriptedModel(turns(folder))
    return Harness.open(folder / "tour.db", registry=Registry([coding_tools, extension(folder)]), models=model)


async def work(folder: Path) -> Answer:
    """Submit the request, or find the one that was submitted before, and wait for its answer."""
    async with open_tour(folder) as harness:
        root = await harness.root(model="scripted:tour", cwd=str(folder / "repo"))
        submission = await root.submit(REQUEST, request_id=REQUEST_ID)
        answer: Answer = await submission.wait()
        return answer


if __name__ == "__main__":
    started = time.monotonic()
    print(asyncio.run(work(Path(sys.argv[1]))).text)
