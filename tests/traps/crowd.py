"""Many real processes that hand in the same request at the same moment, each until it is told an answer.

`python -m tests.traps.crowd library|cli COUNT FOLDER ARGUMENT…` loads everything once, forks the processes, holds them
at a barrier, and prints what each of them was told, as a list in JSON. The library's processes submit to the store
in the folder; the command line's run `perdure` with the arguments. One whose store is in use tries again.
"""

import asyncio
import importlib
import json
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from perdure import Harness, Registry
from perdure.base.errors import StorageInUse
from perdure.cli.main import run
from perdure.testing.ledger import FileLedger
from perdure.testing.process import NoEnv
from perdure.testing.scripted_model import ScriptedModel, say
from perdure.testing.turns import Turn

STORE = "session.perdure"
ASKED = "asked.jsonl"
"""One line for each request that a model of the library's processes was sent."""
TRY_AGAIN = 75
PATIENCE = 100.0
"""Seconds after which a process gives up."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two tries at most: at first, and after many, so that those who wait leave the machine to the one
who works."""
PROVIDER = ("openai", "openai.resources.chat", "openai.types.responses")
"""What a command loads when it asks its first model; once for all is enough."""


async def submit(folder: Path, text: str) -> str:
    """What a process of the library is told."""

    def turn(request: object) -> Turn:
        FileLedger(folder / ASKED).append(json.dumps(os.getpid()).encode())
        return say(f"answered by {os.getpid()}")

    async with Harness.open(folder / STORE, registry=Registry(), models=ScriptedModel(turn), env=NoEnv()) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit(text, request_id="job-1")
        answer = await submission.wait()
        return json.dumps([submission.id, answer.entry_id, answer.text])


def live(kind: str, folder: Path, arguments: list[str]) -> bool:
    """One try of one process. False: another one has the store."""
    if kind == "library":
        try:
            sys.stdout.write(asyncio.run(submit(folder, arguments[0])))
        except StorageInUse:
            return False
        return True
    code = run(arguments)
    if code not in (0, TRY_AGAIN):
        raise RuntimeError(f"the command ended with {code}")
    return code == 0


def be_born(number: int, barrier: int, kind: str, folder: Path, arguments: list[str]) -> NoReturn:
    """The life of one process, what it says in a file."""
    code = 1
    try:
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{number}.{name}", os.O_WRONLY | os.O_CREAT, 0o644), descriptor)
        os.read(barrier, 1)
        end, pause = time.monotonic() + PATIENCE, FIRST_PAUSE
        while not live(kind, folder, arguments):
            assert time.monotonic() < end, "the store was in use all the time"
            assert os.getppid() != 1, "nobody waits for this crowd any more"
            time.sleep(random.random() * pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def gather(kind: str, count: int, folder: Path, arguments: list[str]) -> None:
    """Let a crowd loose and tell what came of it."""
    for module in PROVIDER if kind == "cli" else ():
        importlib.import_module(module)
    barrier, start = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os.close(start)
            be_born(number, barrier, kind, folder, arguments)
        children.append(child)
    os.close(start)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    errors = [(folder / f"{number}.err").read_text() for number, code in enumerate(codes) if code != 0]
    assert not errors, errors[0]
    sys.stdout.write(json.dumps([(folder / f"{number}.out").read_text() for number in range(count)]))


if __name__ == "__main__":
    gather(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
