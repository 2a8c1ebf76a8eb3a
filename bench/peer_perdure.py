"""Perdure's own entry: the workloads of the bare engine, with nothing left out that a user gets.

Variants: `process` (no commit is flushed) and `power` (each is) on SQLite; `jsonl-process` and `jsonl` on lines.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
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
    med,
    now,
    rss_kb,
    tool_args,
    tool_result,
    tree_bytes,
    user_text,
)

from perdure import (
    ROOT,
    AssistantMessage,
    Extension,
    Harness,
    Next,
    Registry,
    Session,
    TaskRun,
    Text,
    ToolCall,
    ToolContext,
    Usage,
    UserMessage,
    configure,
    phase,
    task,
)
from perdure.agent.documents import LiveDoc
from perdure.agent.entries import UserEntry, put
from perdure.base.ids import ConversationId, EntryId
from perdure.models.protocol import Event, Finished, ModelRequest, TextDelta
from perdure.storage.open import open_storage
from perdure.storage.protocol import Storage
from perdure.tasks.transaction import TaskTransaction

PATH = os.path.join(DIR, "perdure.db")
MODEL = "bench:model"
USAGE = Usage(100, 10)
WORKLOAD = sys.argv[1]
HANGS = "BENCH_HANG" in os.environ
MARKS = WORKLOAD.startswith("W5")
FILL = "a kilobyte of words " * 46 if WORKLOAD == "DISK" else ""


class ScriptedModel:
    """Answers at once: a call for a question, an answer for a result. `rounds` calls before an answer."""

    name = MODEL
    context_window: int | None = None
    system_updates = False

    def __init__(self, rounds: int = 1, fill: str = "", marks: bool = False) -> None:
        self._rounds = rounds
        self._fill = fill
        self._marks = marks
        self._left = rounds

    def model(self, name: str) -> "ScriptedModel":
        return self

    def cost(self, name: str, message: AssistantMessage) -> float:
        return 0.0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Event]:
        newest = request.messages[-1]
        if isinstance(newest, UserMessage):
            self._left = self._rounds
        if self._marks:
            mark("model1" if isinstance(newest, UserMessage) else "model2")
        i = len(request.messages)
        if self._left:
            self._left -= 1
            content: list[Any] = [Text(self._fill)] if self._fill else []
            content.append(ToolCall(f"c{i}", "lookup", tool_args(i)))
            yield Finished(AssistantMessage(content, "tool_calls", MODEL, USAGE))
            return
        text = self._fill or answer_text(i)
        yield TextDelta(0, text)
        yield Finished(AssistantMessage([Text(text)], "stop", MODEL, USAGE))


class StreamingModel(ScriptedModel):
    """Answers with as many chunks as the question says."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Event]:
        newest = request.messages[-1]
        assert isinstance(newest, UserMessage)
        assert isinstance(newest.content, str)
        chunks = int(newest.content)
        for _ in range(chunks):
            yield TextDelta(0, CHUNK)
        yield Finished(AssistantMessage([Text(CHUNK * chunks)], "stop", MODEL, USAGE))


bench = Extension("bench")


@bench.tool(replay="safe")
async def lookup(ctx: ToolContext, order_id: int) -> str:
    """Look an order up."""
    if MARKS:
        mark("tool")
    if HANGS:
        await asyncio.sleep(60)
    return FILL or tool_result(order_id)


@task("bench.steps")
class Steps:
    """As many durable steps as it was asked for, one after the other."""

    steps: int

    @phase(first=True)
    async def step(self, run: TaskRun, done: int = 0) -> Next[int]:
        if done < self.steps:
            return run.goto(self.step, done + 1)
        return run.complete(done)


@task("bench.once")
class Once:
    """One step; the last of them is the one at which the process dies, or begins again."""

    last: bool

    @phase(first=True)
    async def only(self, run: TaskRun) -> Next[None]:
        if self.last:
            mark("runnable")
            if HANGS:
                await asyncio.sleep(60)
        return run.complete(None)


bench.add(Steps, Once)


def storage(path: str = PATH) -> Storage:
    kind = "jsonl" if VARIANT.startswith("jsonl") else "sqlite"
    return open_storage(f"{kind}:{path}", durability="power" if VARIANT in ("power", "jsonl", "full") else "process")


def harness(models: Any = None, path: str = PATH) -> Any:
    return Harness.open(
        storage(path),
        registry=Registry([bench]),
        models=models or ScriptedModel(),
    )


async def ask(conversation: Any, text: str) -> None:
    await (await conversation.submit(text)).wait()


async def w1() -> None:
    async with harness() as h:

        async def steps(count: int) -> None:
            async with h.session.transaction() as tx:
                id = tx.create_task(Steps(count), conversation=ROOT)
            await h.resume()
            await h.tasks.wait(id)

        await steps(10)
        with Meter() as meter:
            await steps(STEPS)
    emit(us_per_step=1e6 * meter.wall / STEPS, cpu_us_per_step=1e6 * meter.cpu / STEPS)


async def w2() -> None:
    async with harness() as h:
        root = await h.root(model=MODEL)
        for i in range(5):
            await ask(root, user_text(i))
        before = h.session.seq
        with Meter() as meter:
            for i in range(TURNS):
                await ask(root, user_text(i))
        commits = (h.session.seq - before) / TURNS
    emit(
        ms_per_turn=1e3 * meter.wall / TURNS,
        cpu_ms_per_turn=1e3 * meter.cpu / TURNS,
        commits_per_turn=commits,
        turns_per_s=TURNS / meter.wall,
    )


async def w2c() -> None:
    async with harness() as h:
        await h.root(model=MODEL)
        async with h.session.transaction() as tx:
            ids = [tx.create_conversation(owner=None) for _ in range(CONVS)]
            for id in ids:
                await configure(tx, id, model=MODEL)
        conversations = [await h.conversation(id) for id in ids]

        async def one(conversation: Any, turns: int) -> None:
            for i in range(turns):
                await ask(conversation, user_text(i))

        await asyncio.gather(*(one(c, 1) for c in conversations))
        with Meter() as meter:
            await asyncio.gather(*(one(c, CTURNS) for c in conversations))
    turns = CONVS * CTURNS
    emit(turns_per_s=turns / meter.wall, ms_per_turn=1e3 * meter.wall / turns, cpu_ms_per_turn=1e3 * meter.cpu / turns)


async def w3() -> None:
    """A long conversation beside one at turn 100: their turns alternate, so that both see the same machine."""
    async with harness() as h:
        root = await h.root(model=MODEL)
        resident = 0
        for i in range(LONG - 20):
            await timed(root, i)
            resident = rss_kb() if i == 100 else resident
        grown = (rss_kb() - resident) / max(1, LONG - 120)
        async with h.session.transaction() as tx:
            id = tx.create_conversation(owner=None)
            await configure(tx, id, model=MODEL)
        young = await h.conversation(id)
        for i in range(80):
            await timed(young, i)
        pairs = [(await timed(young, 80 + i), await timed(root, LONG - 20 + i)) for i in range(40)]
    per_turn = tree_bytes(PATH) / (LONG + 140)
    early, late = (1e3 * med(times) for times in zip(*pairs, strict=True))
    emit(turn_at_100_ms=early, turn_at_2000_ms=late, bytes_per_turn=per_turn, rss_kb_per_turn=grown)


async def timed(conversation: Any, i: int) -> float:
    began = now()
    await ask(conversation, user_text(i))
    return now() - began


async def w5() -> None:
    """The turn that is killed inside its tool, and the process after it."""
    mark("open")
    async with harness(ScriptedModel(marks=True)) as h:
        root = await h.root(model=MODEL)
        if await root.live() is None:
            await ask(root, user_text(0))
        else:
            await h.resume()
            await root.wait_idle()
            mark("done")


async def w6() -> None:
    async with harness(StreamingModel()) as h:
        root = await h.root(model=MODEL)
        frames = 0

        async def watch() -> None:
            nonlocal frames
            async with h.watch_document(LiveDoc, ROOT) as live:
                async for _ in live:
                    frames += 1

        await ask(root, "10")
        watcher = asyncio.create_task(watch())
        await asyncio.sleep(0)
        with Meter() as one:
            await ask(root, "1")
        with Meter() as many:
            await ask(root, str(CHUNKS))
        watcher.cancel()
    emit(us_per_chunk=1e6 * (many.wall - one.wall) / CHUNKS, frames_seen=frames, persisted=True)


async def three() -> None:
    """One transaction of three records on the session alone."""
    session: Session[TaskTransaction] = Session(storage(), transaction_type=TaskTransaction)
    await session.open()

    async def one(i: int) -> None:
        async with session.transaction() as tx:
            for _ in range(3):
                put(tx, ROOT, UserEntry, UserMessage(user_text(i)))

    for i in range(20):
        await one(i)
    with Meter() as meter:
        for i in range(STEPS):
            await one(i)
    await session.close()
    emit(us_per_commit=1e6 * meter.wall / STEPS)


async def disk() -> None:
    """1,000 messages of 1 KB in 100 turns of four tool rounds."""
    async with harness(ScriptedModel(rounds=4, fill=FILL)) as h:
        root = await h.root(model=MODEL)
        for _ in range(100):
            await ask(root, FILL)
        messages = len(await root.messages())
    emit(bytes=tree_bytes(PATH), messages=messages)


async def steps_then_die() -> None:
    """2,000 finished steps, and one more that has just begun."""
    async with harness() as h:
        await h.resume()
        for _ in range(20):
            async with h.session.transaction() as tx:
                ids = [tx.create_task(Once(False), conversation=ROOT) for _ in range(100)]
            for id in ids:
                await h.tasks.wait(id)
        async with h.session.transaction() as tx:
            id = tx.create_task(Once(True), conversation=ROOT)
        await h.tasks.wait(id)


async def reopen() -> None:
    mark("open")
    async with harness() as h:
        await h.resume()
        await (await h.root()).wait_idle()


async def fill_long() -> None:
    """100,000 entries, of which the newest hundred are the active range."""
    async with harness() as h:
        root = await h.root(model=MODEL)
        await ask(root, user_text(0))
        for start in range(0, 100_000, 1000):
            async with h.session.transaction() as tx:
                for i in range(start, start + 1000):
                    head = True if i == 99_900 else None
                    put(tx, ConversationId(ROOT), UserEntry, UserMessage(user_text(i)), head=head)


async def fill_empty() -> None:
    async with harness() as h:
        await ask(await h.root(model=MODEL), user_text(0))


async def open_it() -> None:
    before = rss_kb()
    began = now()
    async with harness() as h:
        root = await h.root()
        await root.live()
        opened = now() - began
        await ask(root, user_text(1))
        grown = rss_kb() - before
        assert EntryId(0) < (await root.entries(newest_first=True, limit=1))[0].id
    emit(open_ms=1e3 * opened, rss_kb=grown)


# fmt: off
WORKLOADS = {
    "W1": w1, "W2": w2, "W2C": w2c, "W3": w3, "W5run": w5, "W5resume": w5, "W6": w6, "THREE": three,
    "DISK": disk, "STEPS": steps_then_die, "REOPEN": reopen, "LONG": fill_long, "SHORT": fill_empty, "OPEN": open_it,
}
# fmt: on


if __name__ == "__main__":
    main({name: lambda: asyncio.run(WORKLOADS[WORKLOAD]()) for name in WORKLOADS})
