"""The bare engine: the least durable work that keeps the same promise, with `sqlite3` and nothing else.

Every effect has its intent stored in the commit before it, so that a process killed anywhere can go on. A turn with
one tool call takes four commits, and each row is written once and updated once at most.

Variants: `process` (no commit is flushed) and `power` (each is), both with a write-ahead log.
"""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from common import (
    CHUNK,
    CHUNKS,
    CONVS,
    CTURNS,
    DIR,
    LONG,
    STEPS,
    TURNS,
    VARIANT,
    Meter,
    answer_text,
    emit,
    main,
    mark,
    now,
    tool_args,
    tool_result,
    tree_bytes,
    turn_series,
    user_text,
)

PATH = os.path.join(DIR, "raw.db")
TABLES = """
CREATE TABLE message(thread INTEGER, at INTEGER, body TEXT, PRIMARY KEY (thread, at)) WITHOUT ROWID;
CREATE TABLE work(id INTEGER PRIMARY KEY, thread INTEGER, done INTEGER, what TEXT);
CREATE TABLE thread(id INTEGER PRIMARY KEY, parent INTEGER, up_to INTEGER);
CREATE TABLE step(id INTEGER PRIMARY KEY, result TEXT);
CREATE TABLE chunk(id INTEGER PRIMARY KEY, text TEXT);
"""
SAY = "INSERT INTO message VALUES (?, ?, ?)"
BEGIN_WORK = "INSERT INTO work VALUES (?, ?, 0, ?)"
END_WORK = "UPDATE work SET done = 1 WHERE id = ?"
PER_TURN = 4
"""Messages a turn leaves behind."""
WORK_PER_TURN = 3

Statement = tuple[str, tuple[Any, ...]]


def connect() -> sqlite3.Connection:
    new = not os.path.exists(PATH)
    db = sqlite3.connect(PATH, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if VARIANT in ('power', 'jsonl') else 'NORMAL'}")
    if new:
        db.executescript(TABLES)
    return db


def commit(db: sqlite3.Connection, statements: list[Statement]) -> None:
    db.execute("BEGIN IMMEDIATE")
    for sql, values in statements:
        db.execute(sql, values)
    db.execute("COMMIT")


def commits_of_turn(thread: int, i: int, at: int, id: int) -> Iterator[list[Statement]]:
    """The four commits of turn `i`; between them stand the effects."""
    call = json.dumps({"tool": "lookup", "arguments": tool_args(i)})
    yield [(SAY, (thread, at, json.dumps({"user": user_text(i)}))), (BEGIN_WORK, (id, thread, "ask"))]
    yield [(SAY, (thread, at + 1, call)), (END_WORK, (id,)), (BEGIN_WORK, (id + 1, thread, call))]
    yield [
        (SAY, (thread, at + 2, json.dumps({"result": tool_result(i)}))),
        (END_WORK, (id + 1,)),
        (BEGIN_WORK, (id + 2, thread, "ask")),
    ]
    yield [(SAY, (thread, at + 3, json.dumps({"answer": answer_text(i)}))), (END_WORK, (id + 2,))]


def turn(db: sqlite3.Connection, thread: int, i: int) -> None:
    for statements in commits_of_turn(thread, i, i * PER_TURN, thread * 10_000_000 + i * WORK_PER_TURN):
        commit(db, statements)


def w1() -> None:
    db = connect()
    with Meter() as meter:
        for i in range(STEPS):
            db.execute("INSERT INTO step VALUES (?, ?)", (i, json.dumps({"n": i})))
    emit(us_per_step=1e6 * meter.wall / STEPS, cpu_us_per_step=1e6 * meter.cpu / STEPS)


def w2() -> None:
    db = connect()
    with Meter() as meter:
        for i in range(TURNS):
            turn(db, 1, i)
    emit(ms_per_turn=1e3 * meter.wall / TURNS, cpu_ms_per_turn=1e3 * meter.cpu / TURNS)


def w2c() -> None:
    """Fifty conversations at once: all that is ready goes into one commit."""
    db = connect()
    queue: list[tuple[list[Statement], asyncio.Future[None]]] = []
    writer: asyncio.Task[None] | None = None
    commits = 0

    async def write() -> None:
        nonlocal commits
        while queue:
            batch = queue[:]
            queue.clear()
            commit(db, [statement for statements, _ in batch for statement in statements])
            commits += 1
            for _, stored in batch:
                stored.set_result(None)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def conversation(thread: int) -> None:
        nonlocal writer
        for i in range(CTURNS):
            for statements in commits_of_turn(thread, i, i * PER_TURN, thread * 10_000 + i * WORK_PER_TURN):
                stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                queue.append((statements, stored))
                if writer is None or writer.done():
                    writer = asyncio.create_task(write())
                await stored

    async def everyone() -> None:
        await asyncio.gather(*(conversation(thread) for thread in range(CONVS)))

    with Meter() as meter:
        asyncio.run(everyone())
    turns = CONVS * CTURNS
    emit(turns_per_s=turns / meter.wall, ms_per_turn=1e3 * meter.wall / turns, commits_per_turn=commits / turns)


def w3() -> None:
    db = connect()
    seconds = []
    for i in range(LONG):
        began = now()
        turn(db, 1, i)
        seconds.append(now() - began)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    emit(**turn_series(seconds), bytes_per_turn=tree_bytes(PATH) / LONG)


def w5run() -> None:
    db = connect()
    commits = commits_of_turn(1, 0, 0, 1)
    commit(db, next(commits))
    mark("model1")
    commit(db, next(commits))
    mark("tool")
    time.sleep(60)


def w5resume() -> None:
    mark("start")
    db = connect()
    ((id, _),) = db.execute("SELECT id, what FROM work WHERE done = 0").fetchall()
    mark("tool")
    commits = list(commits_of_turn(1, 0, 0, id - 1))
    commit(db, commits[2])
    mark("model2")
    commit(db, commits[3])
    mark("done")


def w6() -> None:
    """A stream of chunks, fifty of them to a commit."""
    db = connect()

    async def stream() -> AsyncIterator[str]:
        for _ in range(CHUNKS):
            yield CHUNK

    async def keep() -> None:
        waiting: list[str] = []
        async for chunk in stream():
            waiting.append(chunk)
            if len(waiting) == 50:
                db.execute("INSERT INTO chunk(text) VALUES (?)", ("".join(waiting),))
                waiting.clear()

    with Meter() as meter:
        asyncio.run(keep())
    emit(us_per_chunk=1e6 * meter.wall / CHUNKS)


def three() -> None:
    """One commit of three rows."""
    db = connect()
    with Meter() as meter:
        for i in range(STEPS):
            commit(db, [(SAY, (1, 3 * i + n, json.dumps({"user": user_text(i)}))) for n in range(3)])
    emit(us_per_commit=1e6 * meter.wall / STEPS)


WORKLOADS = {
    "W1": w1,
    "W2": w2,
    "W2C": w2c,
    "W3": w3,
    "W5run": w5run,
    "W5resume": w5resume,
    "W6": w6,
    "THREE": three,
}

if __name__ == "__main__":
    main(WORKLOADS)
