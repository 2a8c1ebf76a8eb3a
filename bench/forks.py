"""Forks of a conversation of 2,000 messages at message 1,000: what one takes, in time and on disk.

    python bench/forks.py RAW | OURS

Bytes are pages in use once the log is written into the file, over many forks, so that no page is counted half.
"""

import asyncio
import gc
import sqlite3
import tracemalloc

from common import CONVS, MESSAGES, emit, main, med, now, size, user_text
from peer_perdure import MODEL, PATH, ask, harness
from raw_sqlite import PATH as RAW_PATH
from raw_sqlite import PER_TURN, connect, turn

from perdure import configure
from perdure.agent.entries import AssistantEntry, UserEntry, put
from perdure.base.ids import ROOT, ConversationId
from perdure.models.messages import AssistantMessage, Text, UserMessage

FORKS = size("FORKS", 500)
MANY = size("MANY", 1000)


def used_bytes(path: str) -> int:
    """Pages in use of a closed store, in bytes."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (pages,), (free,), (page,) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    db.close()
    assert isinstance(pages, int)
    return int((pages - free) * page)


def raw() -> None:
    """A fork by reference: one row."""
    db = connect()
    for i in range(MESSAGES // PER_TURN):
        turn(db, 1, i)
    db.close()
    before = used_bytes(RAW_PATH)
    db = connect()
    took = []
    for fork in range(FORKS):
        began = now()
        db.execute("INSERT INTO thread VALUES (?, 1, ?)", (2 + fork, MESSAGES // 2))
        took.append(now() - began)
    db.close()
    emit(fork_ms=1e3 * med(took), fork_bytes=(used_bytes(RAW_PATH) - before) / FORKS)


async def ours() -> None:
    """A fork as a program makes it, of a session that was opened just now and has answered once."""
    async with harness() as h:
        root = await h.root(model=MODEL)
        for i in range(20):
            await ask(root, user_text(i))
        async with h.session.transaction() as tx:
            for i in range(MESSAGES // 2 - 20 * PER_TURN // 2):
                put(tx, ConversationId(ROOT), UserEntry, UserMessage(user_text(i)))
                put(tx, ConversationId(ROOT), AssistantEntry, AssistantMessage([Text(user_text(i))], "stop", MODEL))
        at = (await root.entries(limit=MESSAGES // 2))[-1].id
        await root.fork(at)
    before = used_bytes(PATH)
    async with harness() as h:
        root = await h.root()
        began = now()
        await root.fork(at)
        first = now() - began
        await ask(root, user_text(0))
    answered = used_bytes(PATH)
    async with harness() as h:
        root = await h.root()
        await root.agent()
        took = []
        for _ in range(FORKS):
            began = now()
            await root.fork(at)
            took.append(now() - began)
    grown = (used_bytes(PATH) - answered) / FORKS
    emit(fork_ms=1e3 * med(took), first_ms=1e3 * first, fork_bytes=grown, turn_bytes=answered - before)


async def many() -> None:
    """1,000 conversations of which 50 are at work, beside a session of 50: what the others take in memory, where they
    were never touched since the open, and where each had worked and was let go."""
    ids = {count: await filled(count) for count in (CONVS, MANY)}
    await traced(ids[CONVS], wake_all=False)  # what is loaded once in a process is nobody's
    untouched = {count: await traced(ids[count], wake_all=False) for count in ids}
    touched = {count: await traced(ids[count], wake_all=True) for count in ids}
    others = MANY - CONVS
    emit(
        idle_bytes=(untouched[MANY] - untouched[CONVS]) / others, rested_bytes=(touched[MANY] - touched[CONVS]) / others
    )


async def filled(count: int) -> list[ConversationId]:
    """A session of so many conversations, each with a turn behind it."""
    async with harness(path=f"{PATH}.{count}") as h:
        await h.root(model=MODEL)
        async with h.session.transaction() as tx:
            ids = [tx.create_conversation(owner=None) for _ in range(count)]
            for id in ids:
                await configure(tx, id, model=MODEL)
        for id in ids:
            await ask(await h.conversation(id), user_text(0))
    return ids


async def traced(ids: list[ConversationId], *, wake_all: bool) -> int:
    """Bytes in use with 50 of the conversations at work."""
    gc.collect()
    tracemalloc.start()
    async with harness(path=f"{PATH}.{len(ids)}") as h:
        for id in ids if wake_all else ():
            await ask(await h.conversation(id), user_text(1))
        for id in h.agent.transcripts.forget_idle(float("inf"), set()):
            h.agent.forget(id)
        for id in ids[:CONVS]:
            await ask(await h.conversation(id), user_text(2))
        assert len(h.agent.transcripts) == CONVS
        gc.collect()
        found = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return found


WORKLOADS = {"RAW": raw, "OURS": lambda: asyncio.run(ours()), "MANY": lambda: asyncio.run(many())}

if __name__ == "__main__":
    main(WORKLOADS)
