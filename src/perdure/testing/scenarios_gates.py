"""Gates that hold calls back until people and times let them go, as scenarios for the crash explorer."""

from collections.abc import Awaitable, Callable
from typing import Any

from perdure.extensions.api import HookContext, ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.extensions.results import Block, Continue, Sleep, Terminate, ToolRound
from perdure.models.messages import ToolCall
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun
from perdure.testing.crash import Process, Scenario
from perdure.testing.laws import LawBroken
from perdure.testing.scenarios_waiting import HOUR, START, Word, parked, patience, results, stop, tell, when_parked
from perdure.testing.turns import TurnLike, call, say

QUIET = (START + HOUR, START + 10 * HOUR)
"""Between these nothing is bought."""


def guarded(process: Process) -> Registry:
    """A shop with a gate that asks a person, and one that keeps the night quiet."""
    shop = Extension("shop", signals=[Word])

    @shop.tool
    async def buy(ctx: ToolContext, what: str) -> str:
        """Buy."""
        process.ledger.ran(ctx, "buy")
        process.history.notes["bought"] = ctx.now()
        return f"bought {what}"

    quiet, approvals = Extension("quiet"), Extension("approvals")

    @quiet.before_tool
    async def hours(ctx: HookContext, asked: ToolCall) -> Any:
        return Sleep(until=QUIET[1]) if QUIET[0] <= ctx.now() < QUIET[1] else None

    @approvals.before_tool
    async def approve(ctx: HookContext, asked: ToolCall) -> Any:
        key = f"buy/{asked.arguments['what']}"
        until = await ctx.memo(f"approvals.until.{key}", ctx.now() + 24 * HOUR)
        state = await ctx.read_signal(Word, key)
        if state is None:
            return Sleep(signals=[Word.key(key)], until=until)
        return Block("nobody said yes") if state.expired or state.value != "yes" else None

    return Registry([shop, quiet, approvals])


async def approve_at_night(process: Process, submission: Any) -> None:
    """The yes comes in the quiet hours."""
    if process.clock.now() < START + 2 * HOUR:
        await process.clock.jump_to(START + 2 * HOUR)
    for id in parked(process):
        await tell(process, id, "buy/tea", "yes")


async def uninstall_gate(process: Process, submission: Any) -> None:
    """Nobody has to be asked any more."""
    process.harness.agent.registry.uninstall("approvals")


async def check_bought(process: Process) -> None:
    """Bought once at most, with a yes, and not in the night."""
    (text,) = await results(process) or [""]
    at = process.history.notes.get("bought")
    if at is not None and QUIET[0] <= at < QUIET[1]:
        raise LawBroken(2, "bought in the quiet hours")
    if not text.startswith(("bought", "interrupted", "blocked", "aborted")):
        raise LawBroken(2, f"the model reads {text!r}")
    if text.startswith(("blocked", "aborted")) and at is not None:
        raise LawBroken(2, f"it was bought, and the model reads {text!r}")
    if text.startswith("blocked") and any(key.endswith(" buy/tea") for key in process.history.notes):
        raise LawBroken(3, "the person was told that the yes is taken, and the call was blocked")


# hooks that start tasks which ask


@task("scenario.reviewer")
class Reviewer:
    """Shows an answer, or a round, to a person, who has a day."""

    about: str

    @phase(first=True)
    async def show(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        return run.sleep(self.judged, [Word.key("verdict")], run.now() + 24 * HOUR)

    @phase
    async def judged(self, run: TaskRun) -> Next[Any]:
        """Goes by what was said."""
        state = await run.read_signal(Word, "verdict")
        said = "fine" if state is None or state.expired else state.value
        if said == "stop":
            return run.complete(Terminate())
        return run.complete(Continue(said) if said != "fine" else None)


def reviewed(process: Process) -> Registry:
    """Every draft and every round is shown to a person."""
    extension = Extension("reviewed", tasks=[Reviewer], signals=[Word])

    @extension.tool
    async def file(ctx: ToolContext) -> str:
        """File."""
        process.ledger.ran(ctx, "file")
        return "filed"

    @extension.on_yield
    async def review(ctx: HookContext, answer: Any) -> Any:
        return [Reviewer("the answer")] if "Draft" in answer.text else None

    @extension.after_tools
    async def look(ctx: HookContext, made: ToolRound) -> Any:
        return [Reviewer("the round")]

    return Registry([extension])


def judge(verdict: str, kind: str = "scenario.reviewer") -> Callable[[Process], Awaitable[None]]:
    """A person reads what a task of this kind shows, and says this."""

    async def step(process: Process) -> None:
        submission = await process.submit("go", request_id="first")

        async def there() -> bool:
            return bool(parked(process, kind)) or await submission.status() in ("done", "unanswered")

        await process.until(there)
        for id in parked(process, kind):
            await tell(process, id, "verdict", verdict)
        await process.settled(submission)

    return step


TEA: list[TurnLike] = [call("buy", {"what": "tea"}), say("Done.")]


def _tea(name: str, then: Any) -> Scenario:
    step = when_parked(then)
    return Scenario(name, step, turns=TEA, registry=guarded, finish=step, check=check_bought)


GATES = [
    _tea("approved at night", approve_at_night),
    _tea("nobody approves", patience),
    _tea("stop at a gate", stop),
    _tea("a gate is uninstalled", uninstall_gate),
    Scenario(
        "a person sends an answer back",
        judge("Say it better."),
        turns=[say("Draft."), say("Better.")],
        registry=reviewed,
        finish=judge("Say it better."),
    ),
    Scenario(
        "a person stops after a round",
        judge("stop"),
        turns=[call("file"), say("Never said.")],
        registry=reviewed,
        finish=judge("stop"),
    ),
]
"""Gates that hold calls back, and hooks whose tasks ask people."""
