"""Hooks, rounds and nested calls, as scenarios for the crash explorer."""

import asyncio
from typing import Any

from perdure.agent.settings import Budget, Settings
from perdure.extensions.api import HookContext, ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.extensions.results import AddTools, Continue, RunAnswer, Terminate, ToolResult, ToolRound
from perdure.models.messages import ToolCall
from perdure.session.documents import Document
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun
from perdure.testing.crash import Process, Scenario
from perdure.testing.dump import conversations, tasks
from perdure.testing.laws import LawBroken
from perdure.testing.ledger import Ledger
from perdure.testing.scenarios import ask, begin, hold
from perdure.testing.turns import call, say

READING_SECONDS = 600.0

Delivered: Document[Any] = Document("scenario.delivered", dict, initial=lambda: {"answers": []})
"""Answers that tasks behind a run have delivered, each with its entry."""


class Office:
    """What hooked tasks reach: the ledger of the process that runs now."""

    ledger: Ledger


@task("scenario.review")
class Review:
    """Reads an answer for a while; the first answer of a run goes back."""

    answer: int
    text: str

    @phase(first=True)
    async def read(self, run: TaskRun) -> Next[Any]:
        """Take it home."""
        Office.ledger.ran(run, "read", unsafe=False)
        return run.sleep(self.judge, (), run.now() + READING_SECONDS)

    @phase
    async def judge(self, run: TaskRun) -> Next[Any]:
        """Say what is wrong."""
        return run.complete(Continue("Say it better.") if self.text == "Draft." else None)


@task("scenario.deliver")
class Deliver:
    """Brings an answer that stands to its reader: once, since it is stored with the task's end."""

    answer: int

    @phase(first=True)
    async def bring(self, run: TaskRun) -> Next[Any]:
        """Store and end in one commit."""
        Office.ledger.ran(run, "bring", unsafe=False)
        async with run.transaction() as tx:
            delivered = await tx.doc(Delivered, run.conversation_id)
            delivered["answers"].append(self.answer)
            return tx.complete(None)


@task("scenario.inspection")
class Inspection:
    """Looks at a round of calls; ends the run if it was the last one allowed."""

    answer: int
    place: int
    stop: bool

    @phase(first=True)
    async def look(self, run: TaskRun) -> Next[Any]:
        """Look twice."""
        Office.ledger.ran(run, "look at a round", unsafe=False)
        return run.goto(self.decide)

    @phase
    async def decide(self, run: TaskRun) -> Next[Any]:
        """Decide."""
        return run.complete(Terminate() if self.stop else None)


def office(process: Process) -> Registry:
    """A hook at every moment of a run, and tools for them to look at."""
    Office.ledger = process.ledger
    extension = Extension("office", tasks=[Review, Deliver, Inspection])
    extension.add(Delivered)

    @extension.tool
    async def file(ctx: ToolContext, page: int) -> str:
        """File a page."""
        process.ledger.ran(ctx, f"file {page}")
        return f"page {page} is filed"

    @extension.tool
    async def slow(ctx: ToolContext) -> str:
        """Take time."""
        process.ledger.ran(ctx, "slow")
        await hold(process, "slow")
        return "at last"

    @extension.before_tool(tools=["file"])
    async def number(ctx: HookContext, made: ToolCall) -> ToolCall:
        page = await ctx.memo("page", made.arguments["page"] + 100 * process.number, type=int)
        return made.replace(arguments={"page": page})

    @extension.after_tool
    async def sign(ctx: HookContext, result: ToolResult) -> ToolResult:
        return ToolResult(f"{result.content} (signed)", is_error=result.is_error)

    @extension.on_yield
    async def review(ctx: HookContext, answer: RunAnswer) -> list[Any] | Continue | None:
        word = await ctx.memo(f"seen.{answer.entry_id}", answer.text, type=str)
        if word == "Short.":
            return Continue("Longer.")
        return [Review(answer=answer.entry_id, text=word)] if word == "Draft." else None

    @extension.after_tools
    async def inspect(ctx: HookContext, round: ToolRound) -> list[Any]:
        last = "last" in str(round.message.content)
        return [Inspection(answer=round.entry_id, place=place, stop=last and place == 1) for place in (0, 1)]

    @extension.after_run
    async def deliver(ctx: HookContext, answer: RunAnswer) -> list[Any]:
        return [Deliver(answer=answer.entry_id)]

    return Registry([extension])


async def check_delivered(process: Process) -> None:
    """Every answer that stands was delivered once, and what a hook decided was started once."""
    stood = [s.answer for s in process.history.told.values() if s.status == "done"]
    value = await process.harness.session.value_of(Delivered, process.root.id)
    answers = [] if value is None else value["answers"]
    if len(set(answers)) != len(answers) or not set(stood) <= set(answers):
        raise LawBroken(2, f"delivered were {answers}, and answers that stand are {stood}")
    storage = await process.harness.session.store.settled()
    (root,) = await conversations(storage)
    started = [(task.kind, task.input) for task in await tasks(storage, root) if task.kind.startswith("scenario.")]
    if len(set(started)) != len(started):
        raise LawBroken(2, f"started twice: {started}")


async def steer_review(process: Process) -> None:
    """A person's word comes while an answer is reviewed: it wins."""
    first = await process.submit("go", request_id="first")

    async def reviewed() -> bool:
        return process.ledger.count("read") > 0 or await first.status() in ("done", "unanswered")

    await process.until(reviewed)
    second = await process.submit("this way", request_id="steer", when_busy="steer")
    for submission in (first, second):
        await process.settled(submission)


async def abort_review(process: Process) -> None:
    """A stop comes while an answer is reviewed."""
    first = await process.submit("go", request_id="first")

    async def reviewed() -> bool:
        return process.ledger.count("read") > 0 or await first.status() in ("done", "unanswered")

    await process.until(reviewed)
    await process.abort()
    await process.settled(first)


def nesting(process: Process) -> Registry:
    """Tools that call others: a safe one by keys, an unsafe one without."""
    extension = Extension("nesting")

    @extension.tool
    async def pay(ctx: ToolContext, cents: int) -> str:
        """Pay."""
        process.ledger.ran(ctx, f"pay {cents}")
        return f"paid {cents}"

    @extension.tool(replay="safe")
    async def look(ctx: ToolContext, order: int) -> str:
        """Look."""
        process.ledger.ran(ctx, f"look {order}", unsafe=False)
        return f"order {order}"

    @extension.tool(replay="safe")
    async def checkout(ctx: ToolContext) -> str:
        """Pay twice and look, side by side."""
        paid = [await ctx.start_tool(pay, {"cents": cents}, key=f"pay {cents}") for cents in (1, 2)]
        seen = await ctx.execute_tool("look", {"order": 3}, key="look")
        results = await asyncio.gather(*(one.result() for one in paid))
        return ", ".join(str(result.content) for result in [*results, seen])

    @extension.tool
    async def once(ctx: ToolContext) -> str:
        """Look and pay, never again."""
        process.ledger.ran(ctx, "once")
        await ctx.start_tool("look", {"order": 1})
        return str((await ctx.execute_tool("pay", {"cents": 5})).content)

    @extension.tool(replay="safe")
    async def leave(ctx: ToolContext) -> str:
        """Start a payment and do not wait for it."""
        await ctx.start_tool("wait", key="left")
        return "left"

    @extension.tool(replay="safe")
    async def wait(ctx: ToolContext) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    @extension.before_tool(tools=["look"])
    async def gate(ctx: HookContext, made: ToolCall) -> None:
        await ctx.memo("looked at", made.arguments["order"], type=int)

    return Registry([extension])


def turning(process: Process) -> Registry:
    """Tools that take turns, and one that puts another on offer."""
    extension = Extension("turning")

    @extension.tool(sequential=True)
    async def turn(ctx: ToolContext, number: int) -> str:
        """Take a turn; the second stands still."""
        process.ledger.ran(ctx, f"turn {number}")
        if number == 2:
            await hold(process, "slow")
        return f"turn {number}"

    @extension.tool
    async def find(ctx: ToolContext) -> ToolResult:
        """Find a tool."""
        process.ledger.ran(ctx, "find")
        return ToolResult("found", control=AddTools(["hidden"]))

    @extension.tool
    async def hidden(ctx: ToolContext) -> ToolResult:
        """Be found."""
        process.ledger.ran(ctx, "hidden")
        return ToolResult("hidden", control=Terminate())

    return Registry([extension])


async def choose_and_ask(process: Process) -> None:
    """Only some tools are on offer in the beginning."""
    await process.root.configure(tools=["turn", "find"], budget=Budget(max_turns=8))
    await ask("go")(process)


async def abort_in_turn(process: Process) -> None:
    """A stop between two calls that take turns."""
    first = await begin(process)
    await process.abort()
    await process.settled(first)


async def go_on(process: Process) -> None:
    """Let the call that stands still go on."""
    first = await begin(process)
    process.gate.set()
    await process.settled(first)


TURNS = [call("turn", {"number": number}) for number in (1, 2, 3)]

HOOKS = [
    Scenario(
        "sent back by a hook", ask("go"), turns=[say("Short."), say("Long.")], registry=office, check=check_delivered
    ),
    Scenario(
        "sent back by a task",
        ask("go"),
        turns=[say("Draft."), say("Better.")],
        registry=office,
        finish=ask("go"),
        check=check_delivered,
    ),
    Scenario(
        "steer in a review", steer_review, turns=[say("Draft."), say("This way.")], registry=office, finish=steer_review
    ),
    Scenario("abort in a review", abort_review, turns=[say("Draft.")], registry=office, finish=abort_review),
    Scenario(
        "tasks behind a round",
        ask("go"),
        turns=[[call("file", {"page": 1}), call("file", {"page": 2})], say("Filed.")],
        registry=office,
        finish=ask("go"),
        check=check_delivered,
    ),
    Scenario(
        "a task ends the run",
        ask("go"),
        turns=[[say("the last page"), call("file", {"page": 1})]],
        registry=office,
        check=check_delivered,
    ),
    Scenario(
        "hooks and an abort", abort_in_turn, turns=[call("slow"), say("x")], registry=office, finish=abort_in_turn
    ),
    Scenario(
        "nested, by keys", ask("go"), turns=[call("checkout"), say("Bought.")], registry=nesting, finish=ask("go")
    ),
    Scenario("nested, never again", ask("go"), turns=[call("once"), say("x")], registry=nesting),
    Scenario("nested, left behind", ask("go"), turns=[call("leave"), say("x")], registry=nesting),
    Scenario("abort in turn", abort_in_turn, turns=[TURNS, say("x")], registry=turning, finish=abort_in_turn),
    Scenario("turns, one by one", go_on, turns=[TURNS, say("x")], registry=turning, finish=go_on),
    Scenario(
        "all calls by themselves",
        go_on,
        turns=[TURNS, say("x")],
        registry=turning,
        settings=lambda: Settings(parallel_tools=False),
    ),
    Scenario(
        "a tool is found", choose_and_ask, turns=[call("find"), call("hidden")], registry=turning, finish=choose_and_ask
    ),
]
"""Hooks and the tasks that they start, rounds that take turns, nested calls."""
