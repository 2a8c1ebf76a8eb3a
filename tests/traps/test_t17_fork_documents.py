"""Going back takes the state back too, as each document says; what started later belongs to the parent."""

from typing import Any, TypedDict

import pytest

from perdure import (
    Conversation,
    Document,
    EntryId,
    Extension,
    Harness,
    Next,
    Registry,
    TaskRun,
    UserMessage,
    phase,
    task,
)
from perdure.agent.entries import UserEntry, put
from perdure.models.protocol import ModelRequest
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import call, say
from tests.agent.compacting import Counting, small
from tests.agent.kit import ask, said

LONG = "word " * 100


class Todos(TypedDict):
    """What there is to do."""

    items: list[str]


class Notes(TypedDict):
    """Which calls there were."""

    seen: list[str]


def no_notes() -> Notes:
    """Nothing seen."""
    return {"seen": []}


TodoList: Document[Todos] = Document(
    "app.todos", Todos, history="rewindable", fork="as_of", initial=lambda: {"items": []}
)
Shared: Document[Notes] = Document("app.shared", Notes, fork="current", initial=no_notes)
Fresh: Document[Notes] = Document("app.fresh", Notes, initial=no_notes)


@task("app.research", version=1)
class Research:
    """Work in the background that reports into the conversation it was started in."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        return run.sleep(self.report, until=run.now() + 60)

    @phase
    async def report(self, run: TaskRun) -> Next[Any]:
        async with run.transaction() as tx:
            put(tx, run.conversation_id, UserEntry, UserMessage("late notice"))
            return tx.complete(None)


def extension() -> Extension:
    todo = Extension("todo")
    todo.add(TodoList, Shared, Fresh, Research)

    @todo.tool
    async def add_todo(ctx: Any, item: str) -> str:
        """Add an item to the list."""
        async with ctx.transaction() as tx:
            (await tx.doc(TodoList, ctx.conversation_id))["items"].append(item)
            for kind in (Shared, Fresh):
                (await tx.doc(kind, ctx.conversation_id))["seen"].append(item)
        return f"added {item}"

    @todo.tool
    async def start_research(ctx: Any) -> str:
        """Start research in the background."""
        await ctx.create_task(Research(), conversation=ctx.conversation_id, background=True)
        return "started"

    @todo.section("todos")
    async def show(ctx: Any) -> str | None:
        todos = await ctx.read(TodoList)
        return "Todo: " + ", ".join(todos["items"]) if todos and todos["items"] else None

    return todo


SCRIPT = {
    "a": call("add_todo", {"item": "a"}),
    "b": call("add_todo", {"item": "b"}),
    "research": call("start_research"),
}


def answer(request: ModelRequest) -> Any:
    last = request.messages[-1]
    said_last = str(last.content).split()[0] if isinstance(last, UserMessage) else ""
    return SCRIPT.get(said_last) or say("done")


class Case:
    """A store that may be opened again, and the model that sees every prompt."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.clock = FakeClock()
        self.model = Counting(answer, clock=self.clock, context_window=50_000)

    def open(self) -> Any:
        registry, settings = Registry([extension()]), small(keep_tokens=50, automatic=False)
        return Harness.open(self.storage, registry=registry, models=self.model, settings=settings, clock=self.clock)

    def prompts(self) -> list[str]:
        return [request.system for request in self.model.asked()]


async def result_of(conversation: Conversation, item: str) -> EntryId:
    """The entry of the tool's result."""
    text = f"added {item}".encode()
    return next(EntryId(e.id) for e in await conversation.entries(limit=500) if text in e.messages)


async def seen(harness: Harness, kind: Document[Any], conversation: Conversation) -> Any:
    return await harness.session.snapshot(kind, conversation.id)


async def check_fork(case: Case, harness: Harness, root: Conversation) -> None:
    """The fork at a's result has a alone, in its document and in its first prompt; the parent has both."""
    fork = await root.fork(await result_of(root, "a"))
    assert await seen(harness, TodoList, fork) == {"items": ["a"]}
    assert await seen(harness, Shared, fork) == {"seen": ["a", "b"]}
    assert await seen(harness, Fresh, fork) is None
    assert await ask(fork, "continue") == "done"
    assert case.prompts()[-1] == "Todo: a"
    await ask(fork, "b")
    assert await seen(harness, TodoList, fork) == {"items": ["a", "b"]}
    assert await seen(harness, Fresh, fork) == {"seen": ["b"]}
    assert await seen(harness, TodoList, root) == {"items": ["a", "b"]}
    assert await seen(harness, Shared, root) == {"seen": ["a", "b"]}
    assert "late notice" not in await said(fork)
    live = harness.inspect()["tasks"]
    assert all(row["conversation"] == root.id for row in live), "the fork started with nothing that runs"


@pytest.mark.parametrize("between", ["nothing", "restart", "compaction", "compaction and restart"])
async def test_a_fork_takes_each_document_as_it_says_and_nothing_that_started_later(between: str) -> None:
    case = Case()
    async with case.open() as harness:
        root = await harness.root(model="scripted:model")
        for text in (f"a {LONG}", f"b {LONG}", "research"):
            await ask(root, text)
        assert case.prompts() == ["", "Todo: a", "Todo: a", "Todo: a, b", "Todo: a, b", "Todo: a, b"]
        if "compaction" in between:
            assert (await (await root.compact())).status == "placed"
            assert "a" not in [text.split()[0] for text in await said(root)]
        if "restart" not in between:
            await check_fork(case, harness, root)
            await case.clock.advance(61)
            await settle()
            assert (await said(root))[-1] == "late notice"
    if "restart" in between:
        async with case.open() as harness:
            root = await harness.root()
            await harness.resume()
            await check_fork(case, harness, root)
            await case.clock.advance(61)
            await settle()
            assert (await said(root))[-1] == "late notice"
    async with case.open() as harness:
        for one in await harness.session.storage.scan_conversations(limit=10):
            conversation = await harness.conversation(one.id)
            assert ("late notice" in await said(conversation)) == (one.id == root.id)


async def test_going_back_and_forth_many_times_never_mixes_the_lists() -> None:
    case = Case()
    async with case.open() as harness:
        conversation = await harness.root(model="scripted:model")
        await ask(conversation, "a")
        at = await result_of(conversation, "a")
        for _ in range(5):
            await ask(conversation, "b")
            assert await seen(harness, TodoList, conversation) == {"items": ["a", "b"]}
            conversation = await conversation.fork(at)
            assert await seen(harness, TodoList, conversation) == {"items": ["a"]}
