"""A process that is there to be killed: one harness on a SQLite file, with every effect noted in a file beside it.

Each life opens the session, hands in its messages (with request ids, so that they are the same ones every time),
waits for their answers, writes down what it was told, and ends with 0. A life after a crash begins with a new message.

`python -m tests.crash.victim` is a nursery: for each line `FOLDER NUMBER KILL_AFTER` on its input it forks a life,
kills it after so many seconds (`None`: never), and prints its exit code. It has no threads and no event loop, so that
every fork is a fresh process.
"""

import asyncio
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from perdure.agent.settings import Settings
from perdure.agent.tool_context import ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.harness.harness import Harness
from perdure.models.messages import Usage
from perdure.testing.crash import going_on
from perdure.testing.ledger import FileLedger
from perdure.testing.process import NoEnv, WatchedModel
from perdure.testing.scripted_model import call, say
from perdure.testing.turns import Script, TurnLike

STORE = "session.perdure"
EFFECTS = "effects.jsonl"
ASKED = "asked.jsonl"
"""One line for each request that a model was sent."""
TOLD = "told.jsonl"
"""One line for everything that a sender was told: acknowledgements and settlements."""

ROUND: list[TurnLike] = [
    [call("look", {"order": 1}), call("pay", {"cents": 5}), call("ship")],
    say("Looked, paid, shipped, and here is a long account of it, piece by piece.").after(0.002, between=0.001),
    [call("pay", {"cents": 7}), call("look", {"order": 2})],
    say("Once more."),
]
MESSAGES = ("order", "again")


class Notes(FileLedger):
    """Lines of JSON that are on the disk before the writer goes on."""

    def note(self, **line: Any) -> None:
        """Append one."""
        self.append(msgspec.json.encode({"process": self.process, **line}))


class NotingModel(WatchedModel):
    """Writes down every request before it is answered."""

    asked: Notes

    async def stream_as(self, name: str, request: Any) -> Any:
        """The script's stream, once the request is noted."""
        self.asked.note(messages=msgspec.json.encode(request.messages).decode())
        async for event in super().stream_as(name, request):
            yield event


def tools(ledger: FileLedger, chance: random.Random) -> Registry:
    """`look` is safe to repeat; `pay` and `ship` are not. Each takes a moment on both sides of its effect."""
    shop = Extension("shop")

    async def moment() -> None:
        await asyncio.sleep(chance.random() * 0.004)

    @shop.tool(replay="safe")
    async def look(ctx: ToolContext, order: int) -> str:
        """Look at an order."""
        token = await ctx.memo("token", f"by process {ledger.process}")
        await moment()
        ledger.ran(ctx, "look", unsafe=False, token=token)
        await moment()
        return f"order {order}"

    @shop.tool
    async def pay(ctx: ToolContext, cents: int) -> str:
        """Pay."""
        await moment()
        ledger.ran(ctx, "pay")
        ctx.output("paid\n")
        await moment()
        return f"paid {cents}"

    @shop.tool
    async def ship(ctx: ToolContext) -> str:
        """Ship."""
        ledger.ran(ctx, "ship")
        await moment()
        return "shipped"

    return Registry([shop])


def open_harness(folder: Path, number: int, ledger: FileLedger) -> tuple[Any, NotingModel]:
    """The session of a folder, about to be opened."""
    model = NotingModel(going_on(Script(ROUND)))
    model.finished = list[Usage | None]()
    model.asked = Notes(folder / ASKED, number)
    registry = tools(ledger, random.Random(number))
    settings = Settings(progress_interval=0.002)
    return Harness.open(folder / STORE, registry=registry, models=model, env=NoEnv(), settings=settings), model


async def live(folder: Path, number: int) -> None:
    """One life."""
    told = Notes(folder / TOLD, number)
    opening, _ = open_harness(folder, number, FileLedger(folder / EFFECTS, number))
    async with opening as harness:
        root = await harness.root(model="scripted:model")
        submissions = []
        for text in ([] if number == 1 else [f"hello after crash {number - 1}"]) + list(MESSAGES):
            submission = await root.submit(text, request_id=text)
            told.note(request_id=text, id=submission.id)
            submissions.append(submission)
        for submission in submissions:
            told.note(id=submission.id, settled=msgspec.to_builtins(await submission.settled()))


def nursery() -> None:
    """Fork lives until the input ends. Only this process, which has not waited for it yet, kills a life."""
    for line in sys.stdin:
        folder, number, kill_after = line.split()
        child = os.fork()
        if child == 0:
            _be_born(Path(folder), int(number))
        if kill_after != "None":
            time.sleep(float(kill_after))
            os.kill(child, signal.SIGKILL)
        os.write(1, f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())


def _be_born(folder: Path, number: int) -> NoReturn:
    code = 1
    try:
        asyncio.run(live(folder, number))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    nursery()
