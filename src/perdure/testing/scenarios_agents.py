"""Agents within agents, calls within calls, and rounds of both kinds, as scenarios for the crash explorer."""

from collections import Counter
from typing import Any, Final

from perdure.agent.documents import LiveDoc
from perdure.agent.tool_context import ToolContext
from perdure.base.ids import TaskId
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.models.messages import UserMessage
from perdure.models.protocol import ModelRequest
from perdure.testing.crash import Process, Scenario
from perdure.testing.dump import conversations
from perdure.testing.laws import LawBroken
from perdure.testing.scenarios import ask, begin, tools
from perdure.testing.turns import Script, TurnFunction, TurnLike, call, say

ORDER: Final = "you are a helper: "
"""What every input of a helper begins with: the script tells helpers by it."""


def helpers(process: Process) -> Registry:
    """The shop, and tools that let a conversation of their own do the work."""
    registry = tools(process)
    office = Extension("helpers")

    @office.tool
    async def delegate(ctx: ToolContext, what: str) -> str:
        """Let a new helper do it."""
        process.ledger.ran(ctx, "delegate")
        async with ctx.transaction() as tx:
            child = tx.create_conversation(owner=ctx.task_id)
        return await answer(process, ctx.conversation(child), what)

    @office.tool(replay="safe")
    async def delegate_again(ctx: ToolContext, what: str) -> str:
        """Let a helper do it that has read along; asked again, it is the same helper and the same request."""
        here = ctx.conversation()
        entry = await ctx.memo("entry", (await here.entries(limit=1))[0].id)
        process.ledger.ran(ctx, "delegate again", unsafe=False, token=str(entry))
        child = await here.fork(entry, owner=ctx.task_id, key=f"helper of {ctx.task_id}")
        return await answer(process, child, what)

    @office.tool(replay="safe")
    async def purchase(ctx: ToolContext, cents: int) -> str:
        """Look, then pay, by calls of its own under keys."""
        process.ledger.ran(ctx, "purchase", unsafe=False)
        looked = await ctx.execute_tool("look", {"order": 1}, key="look")
        paid = await ctx.execute_tool("pay", {"cents": cents}, key="pay")
        return f"{looked.content}; {paid.content}"

    registry.install(office)
    return registry


async def answer(process: Process, child: Any, what: str) -> str:
    """Ask a helper and wait for what it says."""
    submission = await child.submit(ORDER + what, request_id="what to do")
    process.acknowledge(child.id, "what to do", submission)
    settled = await submission.settled()
    return f"{settled.status}: {what}"


def family(parent: list[TurnLike], helper: list[TurnLike]) -> TurnFunction:
    """One script for the root, one for each helper: told by the last input that somebody gave."""
    scripts = {False: Script(parent), True: Script(helper)}

    def turn(request: ModelRequest) -> TurnLike:
        inputs = [(i, said) for i, said in enumerate(request.messages) if isinstance(said, UserMessage)]
        place, newest = inputs[-1]
        helps = str(newest.content).startswith(ORDER)
        if not helps:
            return scripts[False](request)
        own = ModelRequest(messages=request.messages[place:], session_id=request.session_id)
        return scripts[True](own)

    return turn


async def abort_over_helpers(process: Process) -> None:
    """The root is aborted while a helper's tool runs: nothing of the helper goes on."""
    first = await begin(process)
    await process.abort()
    asked = len(process.model.requests)
    await process.settled(first)
    await process.run_out()
    if len(process.model.requests) != asked:
        raise LawBroken(5, "a helper's model was asked after the abort of its owner had been acknowledged")


async def check_helpers(process: Process) -> None:
    """Each call has one helper at most, who pays once at most; none works on once its call has ended."""
    owners: Counter[TaskId] = Counter()
    for record in await conversations(process.storage.real):
        if record.owner is None:
            continue
        owners[record.owner] += 1
        live: Any = await process.harness.session.value_of(LiveDoc, record.id)
        if live is not None and live["run"] is not None:
            raise LawBroken(6, f"conversation {record.id} still works for task {record.owner}")
    if any(count > 1 for count in owners.values()):
        raise LawBroken(2, f"helpers of the same call: {owners}")
    if process.ledger.count("pay") > len(owners):
        raise LawBroken(2, f"{process.ledger.count('pay')} payments by {len(owners)} helpers")


async def check_once(process: Process) -> None:
    """However often the call above runs: the one below it was made once, and is found again."""
    if process.ledger.count("pay") > 1:
        raise LawBroken(2, f"paid {process.ledger.count('pay')} times for one purchase")


HELPED: list[TurnLike] = [call("pay", {"cents": 5}), say("Paid for you.")]
SLOWLY: list[TurnLike] = [call("slow"), say("At last.")]


def delegating(*names: str) -> list[TurnLike]:
    """One round that gives work to helpers, and the answer."""
    return [[call(name, {"what": f"part {number}"}) for number, name in enumerate(names)], say("They did it.")]


AGENTS = [
    Scenario(
        "helper",
        ask("go"),
        turns=family(delegating("delegate"), HELPED),
        registry=helpers,
        finish=ask("go"),
        check=check_helpers,
        streams=2,
    ),
    Scenario(
        "helpers side by side",
        ask("go"),
        turns=family(delegating("delegate", "delegate"), HELPED),
        registry=helpers,
        check=check_helpers,
        streams=3,
    ),
    Scenario(
        "helper that is found again",
        ask("go"),
        turns=family(delegating("delegate_again"), HELPED),
        registry=helpers,
        check=check_helpers,
        streams=2,
    ),
    Scenario(
        "abort over a helper",
        abort_over_helpers,
        turns=family(delegating("delegate"), SLOWLY),
        registry=helpers,
        finish=abort_over_helpers,
        check=check_helpers,
        streams=2,
    ),
    Scenario(
        "calls within a call",
        ask("go"),
        turns=[call("purchase", {"cents": 5}), say("Bought.")],
        registry=helpers,
        finish=ask("go"),
        check=check_once,
    ),
    Scenario(
        "a round in turn, then one at once",
        ask("go"),
        turns=[
            [call("in_turn", {"number": 1}), call("pay", {"cents": 5}), call("in_turn", {"number": 3})],
            [call("pay", {"cents": 7}), call("look", {"order": 2}), call("ship")],
            say("All of it."),
        ],
        registry=tools,
    ),
]
"""Work that belongs to a call: conversations, other calls; and rounds whose calls run in turn or at once."""
