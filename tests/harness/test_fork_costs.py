"""What forks and idle conversations cost. The limits are generous: this machine may be busy."""

import gc
import sqlite3
import statistics
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from perdure import ROOT, AssistantMessage, ConversationId, Harness, Text, UserMessage, configure
from perdure.agent.entries import AssistantEntry, UserEntry, put
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import ScriptedModel, say
from tests.agent.kit import MODEL, ask

MESSAGES = 2_000
FORKS = 200


def opened(path: Path, clock: Any = None) -> Any:
    model = ScriptedModel(lambda request: say("ok"), clock=clock)
    model.requests = Forgetful()
    return Harness.open(SqliteStorage(path, durability="process"), models=model, clock=clock)


class Forgetful(list[Any]):
    """Keeps nothing: what the model was sent is not what the harness keeps."""

    def append(self, item: Any) -> None:
        """Let it go."""


def used_bytes(path: Path) -> int:
    """Pages in use of a closed store, in bytes."""
    db = sqlite3.connect(path)
    pages, free, page = (db.execute(f"PRAGMA {n}").fetchone()[0] for n in ("page_count", "freelist_count", "page_size"))
    db.close()
    return int((pages - free) * page)


@pytest.mark.slow
async def test_a_fork_in_the_middle_of_two_thousand_messages_takes_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with opened(path) as harness:
        root = await harness.root(model=MODEL)
        await ask(root, "hello")
        async with harness.session.transaction() as tx:
            for number in range(MESSAGES // 2):
                put(tx, ROOT, UserEntry, UserMessage(f"question {number} " * 20))
                put(tx, ROOT, AssistantEntry, AssistantMessage([Text(f"answer {number} " * 20)]))
        at = (await root.entries(limit=MESSAGES // 2))[-1].id
        await root.fork(at)
    before = used_bytes(path)
    async with opened(path) as harness:
        root = await harness.root()
        seconds = []
        for _ in range(FORKS):
            began = time.perf_counter()
            fork = await root.fork(at)
            seconds.append(time.perf_counter() - began)
        assert len(await fork.messages()) > 900
        assert await ask(fork, "on") == "ok"
    assert statistics.median(seconds) < 0.010  # about 0.0002 on an idle machine; the promise is 0.002
    assert (used_bytes(path) - before) / FORKS < 2_048


@pytest.mark.slow
async def test_of_a_thousand_conversations_only_those_at_work_are_in_memory(tmp_path: Path) -> None:
    path, clock = tmp_path / "s.db", FakeClock()
    async with opened(path, clock) as harness:
        await harness.root(model=MODEL)
        async with harness.session.transaction() as tx:
            ids = [tx.create_conversation(owner=None) for _ in range(1_000)]
            for id in ids:
                await configure(tx, id, model=MODEL)
                for number in range(5):
                    put(tx, id, UserEntry, UserMessage(f"question {number} " * 50))
                    put(tx, id, AssistantEntry, AssistantMessage([Text(f"answer {number} " * 50)]))
    async with opened(path, clock) as harness:

        async def work(some: list[ConversationId]) -> None:
            for id in some:
                await ask(await harness.conversation(id), "on")

        async def rested() -> int:
            await clock.advance(harness.settings.retention + 2)
            assert len(harness.agent.transcripts) == 0
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        at_work = ids[:50]
        await work(at_work)
        assert len(harness.agent.transcripts) == 50
        assert not idle_traces(harness, ids[50:])
        tracemalloc.start()
        await work(at_work)
        grown = []
        for first in (50, 250, 450):  # some wake up, and come to rest again; others' caches grow in between, once
            before = await rested()
            await work(ids[first : first + 200])
            grown.append(await rested() - before)
        tracemalloc.stop()
        assert min(grown) / 200 < 2_048
        await work(at_work)
        assert {key[2] for key in harness.session.store.working.documents if key[1] == "conversation"} == set(at_work)


def idle_traces(harness: Harness, ids: list[ConversationId]) -> list[object]:
    """What the harness keeps in memory of conversations."""
    working, idle = harness.session.store.working, set(ids)
    found: list[object] = [key for key in working.documents if key[1] == "conversation" and key[2] in idle]
    found += [id for id in working.conversations if id in idle]
    found += [task for task in working.tasks.values() if task.conversation in idle]
    found += [id for id in idle if harness.agent.transcripts.held(id) is not None]
    return found
