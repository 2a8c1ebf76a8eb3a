"""Every way in which a conversation of the core goes, as scenarios for the crash explorer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.agent.documents import LiveDoc
from perdure.agent.entries import AssistantEntry
from perdure.agent.settings import Settings
from perdure.agent.tool_context import ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.extensions.results import Block, ToolError
from perdure.models.errors import RateLimited
from perdure.models.messages import AssistantMessage, ToolCall, UserMessage, decode_messages
from perdure.session.documents import Document
from perdure.session.entries import entry
from perdure.testing.crash import Process, Scenario
from perdure.testing.turns import TurnLike, call, fail, later, say

PROGRESS: Settings = Settings(progress_interval=0.05)

Mood: Document[Any] = Document("scenario.mood", dict, initial=lambda: {"mood": "calm"})
"""Read by a section of the prompt, changed by a tool."""


@entry("scenario.note")
@dataclass(frozen=True)
class Note:
    """A passive entry that a model reads."""

    text: str

    def to_model(self) -> list[UserMessage]:
        """As something that was said."""
        return [UserMessage(f"note: {self.text}")]


def tools(process: Process) -> Registry:
    """A shop: `look` is safe to repeat, `pay` and `ship` are not, `slow` waits in the first process until let go."""
    shop = Extension("shop")

    @shop.tool(replay="safe")
    async def look(ctx: ToolContext, order: int) -> str:
        """Look at an order."""
        token = await ctx.memo("token", f"by process {process.number}")
        process.ledger.ran(ctx, "look", unsafe=False, token=token)
        ctx.output("looking\n")
        return f"order {order} is open"

    @shop.tool
    async def pay(ctx: ToolContext, cents: int) -> str:
        """Pay."""
        process.ledger.ran(ctx, "pay")
        return f"paid {cents}"

    @shop.tool
    async def ship(ctx: ToolContext) -> str:
        """Ship."""
        ctx.output("packing\n")
        process.ledger.ran(ctx, "ship")
        ctx.output("gone\n")
        return "shipped"

    @shop.tool
    async def slow(ctx: ToolContext) -> str:
        """Take time."""
        process.ledger.ran(ctx, "slow")
        await hold(process, "slow")
        return "at last"

    @shop.tool(sequential=True)
    async def in_turn(ctx: ToolContext, number: int) -> str:
        """Take its turn."""
        process.ledger.ran(ctx, f"turn {number}")
        return f"turn {number}"

    @shop.tool
    async def upset(ctx: ToolContext) -> str:
        """Change the mood."""
        process.ledger.ran(ctx, "upset")
        async with ctx.transaction() as tx:
            mood = await tx.doc(Mood, ctx.conversation_id)
            mood["mood"] = "wild"
        return "oh"

    shop.add(Mood, Note)
    return Registry([shop])


async def hold(process: Process, point: str) -> None:
    """Stand still in the first process until `let_go`; later ones pass."""
    process.reached.add(point)
    if process.number == 1:
        await process.gate.wait()


def ask(text: str, request_id: str = "first") -> Callable[[Process], Any]:
    """Submit one message and wait for its settlement."""

    async def step(process: Process) -> None:
        await process.settled(await process.submit(text, request_id=request_id))

    return step


async def begin(process: Process, point: str = "slow") -> Any:
    """Submit, and come to the point where the tool stands still (or, after a crash, to the end)."""
    submission = await process.submit("go", request_id="first")

    async def there() -> bool:
        return point in process.reached or await submission.status() in ("done", "unanswered")

    await process.until(there)
    return submission


async def steer(process: Process) -> None:
    """A steer and a follow-up come while a tool runs."""
    first = await begin(process)
    second = await process.submit("faster", request_id="steer", when_busy="steer")
    third = await process.submit("and then?", request_id="then")
    process.gate.set()
    for submission in (first, second, third):
        await process.settled(submission)


async def write(process: Process) -> None:
    """A write before, during and after work."""
    early = await process.write(Note("early"), request_id="early")
    first = await begin(process)
    within = await process.write(Note("within"), request_id="within")
    process.gate.set()
    await process.settled(first)
    late = await process.write(Note("late"), request_id="late")
    for submission in (early, within, late):
        await process.settled(submission)


async def abort(process: Process) -> None:
    """An abort while a tool runs and a message is queued: after it nothing starts."""
    first = await begin(process)
    queued = await process.submit("and then?", request_id="queued")
    await process.abort()
    asked = len(process.model.requests)
    settled = [await process.settled(first), await process.settled(queued)]
    await process.run_out()
    assert len(process.model.requests) == asked, "a request after an acknowledged abort"
    if process.number == 1:
        assert [s.reason for s in settled] == ["aborted", "withdrawn"], settled


async def abort_keeping(process: Process) -> None:
    """An abort that leaves the queue: what was queued goes with the next message."""
    first = await begin(process)
    queued = await process.submit("and then?", request_id="queued")
    await process.abort(keep_queued=True)
    await process.settled(first)
    later = await process.submit("now", request_id="later")
    await process.settled(later)
    await process.settled(queued)


async def abort_stream(process: Process) -> None:
    """An abort in the middle of an answer."""
    first = await process.submit("go", request_id="first")
    await process.until(lambda: process.clock.monotonic() > 0.25)
    await process.abort()
    await process.settled(first)


async def withdraw(process: Process) -> None:
    """One queued message is taken back; the one after it is answered."""
    first = await begin(process)
    second = await process.submit("no", request_id="second")
    third = await process.submit("yes", request_id="third")
    process.history.aborts += 1  # after a crash it may be placed by now: then its run is stopped
    await second.abort()
    process.gate.set()
    await process.settled(first)
    await process.settled(second)
    fourth = await process.submit("now", request_id="fourth")  # what a stopped run left queued goes first with it
    for submission in (third, fourth):
        await process.settled(submission)


async def configure(process: Process) -> None:
    """Instructions and the choice of tools change while a tool runs."""
    first = await begin(process)
    await process.root.configure(instructions="Be quick.", tools=["pay", "slow"])
    process.gate.set()
    await process.settled(first)
    await ask("more", "second")(process)


async def fork(process: Process) -> None:
    """A fork at the first answer, under a key; both conversations go on."""
    first = await process.submit("go", request_id="first")
    settled = await process.settled(first)
    assert settled.answer is not None
    other = await process.root.fork(settled.answer, key="other")
    in_fork = await process.submit("what if?", request_id="first", to=other)
    in_root = await process.submit("go on", request_id="second")
    for submission in (in_fork, in_root):
        await process.settled(submission)


async def replace_code(process: Process) -> None:
    """The extension is replaced while its tool runs, later removed, and put back."""
    first = await begin(process)
    registry = process.harness.agent.registry
    registry.install(tools(process).snapshot().extensions["shop"])
    process.gate.set()
    await process.settled(first)
    registry.uninstall("shop")
    await ask("without", "second")(process)
    registry.install(tools(process).snapshot().extensions["shop"])
    await ask("with", "third")(process)


async def check_cut(process: Process) -> None:
    """What had come of an answer when the process died is in the transcript, marked as cut off."""
    shown = [found for found in process.storage.at_open.values() if isinstance(found, tuple)]
    cut_off = any(record.kind == LiveDoc.kind and value[0]["partial"] is not None for record, value in shown)
    entries = await process.root.entries(limit=1000)
    answers = [decode_messages(entry.messages)[0] for entry in entries if entry.kind == AssistantEntry.KIND]
    assert not cut_off or any(isinstance(m, AssistantMessage) and m.stop == "aborted" for m in answers), answers


def gated(process: Process) -> Registry:
    """The shop with a gate that forbids payments above 10 and lowers others by one."""
    registry = tools(process)
    guard = Extension("guard")

    @guard.before_tool(tools=["pay"])
    async def limit(ctx: Any, hooked: ToolCall) -> ToolCall | Block:
        cents = hooked.arguments["cents"]
        return Block("too much") if cents > 10 else ToolCall(hooked.id, hooked.name, {"cents": cents - 1})

    registry.install(guard)
    return registry


def faulty(process: Process) -> Registry:
    """Tools that raise, return garbage, and cancel themselves."""
    bad = Extension("bad")

    @bad.tool
    async def breaks(ctx: ToolContext) -> str:
        """Raise."""
        process.ledger.ran(ctx, "breaks")
        raise ValueError("broken")

    @bad.tool
    async def refuses(ctx: ToolContext) -> str:
        """Refuse."""
        raise ToolError("not today")

    @bad.tool
    async def garbage(ctx: ToolContext) -> Any:
        """Return what cannot be stored."""
        process.ledger.ran(ctx, "garbage")
        return {"a set": {1, 2}, "a number": float("nan")}

    @bad.tool
    async def gives_up(ctx: ToolContext) -> str:
        """Cancel itself."""
        raise asyncio.CancelledError

    return Registry([bad])


def sectioned(process: Process) -> Registry:
    """The shop with a section of the prompt that follows a document."""
    registry = tools(process)
    prompt = Extension("prompt")

    @prompt.section("mood")
    async def mood(ctx: Any) -> str | None:
        value = await ctx.read(Mood, ctx.conversation_id)
        return f"The mood is {'calm' if value is None else value['mood']}."

    registry.install(prompt)
    return registry


PARALLEL: list[TurnLike] = [
    [call("look", {"order": 1}), call("pay", {"cents": 5}), call("ship")],
    say("Looked, paid, shipped."),
]
SLOW: list[TurnLike] = [[call("slow"), call("look", {"order": 1})], say("Done.")]
LONG = say("It streams and streams, piece by piece, for quite a while.")

CONVERSATIONS = [
    Scenario("plain answer", ask("hello"), turns=[say("Hello.")]),
    Scenario("asked again", ask("hello"), turns=[say("Hello.")], finish=ask("hello")),
    Scenario("one tool", ask("pay"), turns=[call("pay", {"cents": 5}), say("Paid.")], registry=tools),
    Scenario("three tools", ask("go"), turns=PARALLEL, registry=tools),
    Scenario("three tools, asked again", ask("go"), turns=PARALLEL, registry=tools, finish=ask("go")),
    Scenario(
        "streaming", ask("tell"), turns=[LONG.after(0.1, between=0.1)], settings=lambda: PROGRESS, check=check_cut
    ),
    Scenario("retry", ask("hello"), turns=[fail(RateLimited("slow down", retry_after=7)), say("Hello.")]),
    Scenario(
        "deferred",
        ask("no hurry"),
        turns=[later(60, call("pay", {"cents": 5}), 60), later(60, say("Paid."))],
        registry=tools,
        finish=ask("no hurry"),
    ),
    Scenario("steer", steer, turns=[*SLOW, say("Then this.")], registry=tools, finish=steer),
    Scenario("write", write, turns=SLOW, registry=tools, finish=write),
    Scenario("abort in a tool", abort, turns=SLOW, registry=tools, finish=abort),
    Scenario("abort, queue kept", abort_keeping, turns=SLOW, registry=tools, finish=abort_keeping),
    Scenario(
        "abort in a stream",
        abort_stream,
        turns=[LONG.after(0.1, between=0.1)],
        settings=lambda: PROGRESS,
        check=check_cut,
    ),
    Scenario("withdraw", withdraw, turns=SLOW, registry=tools, finish=withdraw),
    Scenario("configure", configure, turns=[*SLOW, call("pay", {"cents": 1}), say("More.")], registry=tools),
    Scenario("section", ask("go"), turns=[call("upset"), say("Wild."), say("Still.")], registry=sectioned),
    Scenario("fork", fork, turns=[say("One."), say("Two.")], finish=fork, streams=2),
    Scenario(
        "in turn",
        ask("go"),
        turns=[[call("in_turn", {"number": 1}), call("look", {"order": 2}), call("in_turn", {"number": 3})], say("x")],
        registry=tools,
    ),
    Scenario(
        "gate", ask("go"), turns=[[call("pay", {"cents": 50}), call("pay", {"cents": 5})], say("x")], registry=gated
    ),
    Scenario(
        "faulty tools",
        ask("go"),
        turns=[
            [call("breaks"), call("refuses"), call("garbage"), call("gives_up"), call("gone"), call("breaks", "{")],
            say("Oh dear."),
        ],
        registry=faulty,
    ),
    Scenario(
        "code replaced", replace_code, turns=[*SLOW, call("pay", {"cents": 1}), say("x"), say("y")], registry=tools
    ),
]
"""Conversations and their tools."""
