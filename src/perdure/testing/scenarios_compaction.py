"""Summaries, resets and handoffs, as scenarios for the crash explorer."""

from collections import Counter
from typing import Any, Final

from perdure.agent.compactions import ATTEMPT, COMPACTION
from perdure.agent.entries import ResetEntry, SummaryEntry
from perdure.agent.settings import CompactionSettings, Settings
from perdure.agent.summary import OPENING
from perdure.base import jsonvalue
from perdure.extensions.api import HookContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.extensions.results import CompactionPlan, Summary
from perdure.models.errors import ContextTooLong, Overloaded
from perdure.models.messages import ToolResultMessage, Usage, UserMessage, text_of
from perdure.models.protocol import ModelRequest
from perdure.tasks.outcomes import Completed
from perdure.tasks.states import outcome_of
from perdure.testing.crash import Process, Scenario
from perdure.testing.dump import conversations, own_entries, tasks
from perdure.testing.laws import LawBroken
from perdure.testing.scenarios import begin, tools
from perdure.testing.strict import estimate_tokens
from perdure.testing.turns import Turn, TurnLike, as_turn, call, fail, say
from perdure.tools.history import history_tools

WINDOW: Final = 2_000
LONG: Final = "word " * 160
"""200 tokens."""


def small(background: int = 500) -> Settings:
    """Settings for a window of 2,000 tokens: waiting from 1,500 on, in the background so much before."""
    return Settings(
        compaction=CompactionSettings(reserve_tokens=500, background_tokens=background, keep_tokens=300),
        progress_interval=0.05,
    )


def is_summary(request: ModelRequest) -> bool:
    """Whether a request asks for a summary."""
    return "taken out of your context" in text_of(request.messages[-1])


def model(request: ModelRequest) -> TurnLike:
    """Says how much it read; calls the slow tool when told to go, and summarizes slowly."""
    if is_summary(request):
        return counted(say("Notes of all that.").after(0.5), request)
    last = request.messages[-1]
    if isinstance(last, UserMessage) and text_of(last) == "go":
        return counted(as_turn([call("slow"), call("look", {"order": 1})]), request)
    return counted(say("Fine."), request)


def counted(turn: Turn, request: ModelRequest) -> Turn:
    """The turn with a bill like a provider's."""
    return turn.with_usage(Usage(input=estimate_tokens(request), output=10))


def too_long(request: ModelRequest) -> TurnLike:
    """A provider that takes a thousand tokens at once."""
    if estimate_tokens(request) > 1_000 and not is_summary(request):
        return fail(ContextTooLong("too many"))
    return model(request)


class Unlucky:
    """A model whose first summaries fail, in every process anew."""

    def __init__(self) -> None:
        self.failed = 0

    def __call__(self, request: ModelRequest) -> TurnLike:
        if is_summary(request) and self.failed < 2:
            self.failed += 1
            return fail(Overloaded("busy")) if self.failed == 1 else Turn(usage=Usage(input=3))
        return model(request)


async def talk(process: Process, turns: int) -> None:
    """So many short exchanges; after a crash they are asked for again and go on where they were."""
    for number in range(turns):
        await process.settled(await process.submit(f"{number} {LONG}", request_id=f"talk {number}"))


async def asked_for(process: Process) -> None:
    """A person asks for a summary, and another who wants the same comes a moment later."""
    await talk(process, 2)
    first, second = await process.root.compact("Keep the words."), await process.root.compact()
    await process.run_out()
    assert first.task_id == second.task_id
    assert (await first.wait()).status == "placed"


async def at_work(process: Process) -> None:
    """A summary is asked for while a tool runs: it is placed behind the round."""
    await talk(process, 2)
    working = await begin(process)
    await process.root.compact()
    process.gate.set()
    await process.settled(working)


async def stopped(process: Process) -> None:
    """A summary is being made when everything is aborted."""
    await talk(process, 2)
    await process.root.compact()
    await process.until(lambda: any(map(is_summary, process.model.requests)))
    process.history.aborts += 1
    await process.root.abort()
    await talk(process, 3)


async def overtaken(process: Process) -> None:
    """A reset comes while a summary is being made: that is stale then."""
    await talk(process, 2)
    await process.root.compact()
    await process.root.reset("From here.", request_id="reset")
    await process.run_out()
    await talk(process, 3)


async def reset_in_round(process: Process) -> None:
    """A reset, a steer and a follow-up come while a tool runs: the run ends, the others go on behind the reset."""
    working = await begin(process)
    waiting = [
        await process.submit("faster", request_id="steer", when_busy="steer"),
        await process.root.reset("From here.", request_id="reset"),
        await process.submit("and then?", request_id="then"),
    ]
    process.gate.set()
    for submission in [working, *waiting]:
        await process.settled(submission)


async def hand_off(process: Process) -> None:
    """The agent hands over to itself."""
    await process.settled(await process.submit("hand over", request_id="first"))
    await process.run_out()


def handing_off(request: ModelRequest) -> TurnLike:
    """Hands off once, then goes on in the new context."""
    last = request.messages[-1]
    if isinstance(last, UserMessage) and text_of(last) == "hand over":
        return [call("handoff", {"note": "Half is done."}), call("look", {"order": 1})]
    return say("Done.") if not isinstance(last, ToolResultMessage) else say("Never said.")


def with_history(process: Process) -> Registry:
    """The shop with the tools to hand off and to search."""
    registry = tools(process)
    registry.install(history_tools)
    return registry


def own_summary(process: Process) -> Registry:
    """The shop with a hook that writes the summary itself; what it decided first counts for ever."""
    registry = tools(process)
    writer = Extension("writer")

    @writer.before_compact
    async def write(ctx: HookContext, plan: CompactionPlan) -> Summary:
        return Summary(await ctx.memo("writer.text", f"written by process {process.number}, {plan.cause}"))

    registry.install(writer)
    return registry


async def check_summaries(process: Process) -> None:
    """Each compaction that says so placed one summary, and summarized once; nothing else stands in the transcript."""
    storage = await process.harness.session.store.settled()
    placed: Counter[int] = Counter()
    finished: Counter[int] = Counter()
    claimed: Counter[int] = Counter()
    for conversation in await conversations(storage):
        for entry in await own_entries(storage, conversation):
            data: Any = jsonvalue.decode(entry.data)
            if entry.kind == SummaryEntry.KIND:
                placed[data["compaction"]] += 1
            elif entry.kind == ATTEMPT and data["error"] is None:
                finished[int(entry.task or 0)] += 1
        for task in await tasks(storage, conversation):
            outcome = outcome_of(task) if task.kind == COMPACTION and task.status == "terminal" else None
            if isinstance(outcome, Completed):
                value: Any = outcome.value
                claimed[task.id] += value["status"] in ("placed", "queued")
                if value["status"] == "queued":  # by now it was placed, or was stale
                    submission = await storage.submission(value["submission"])
                    assert submission is not None
                    claimed[task.id] -= submission.status != "done"
    if placed != +claimed:
        raise LawBroken(2, f"summaries placed {dict(placed)}, compactions that say so {dict(+claimed)}")
    if any(count > 1 for count in finished.values()):
        raise LawBroken(2, f"summarized more than once: {dict(finished)}")
    for request in process.model.requests:
        if sum(text_of(message).startswith(OPENING) for message in request.messages) > 1:
            raise LawBroken(1, "two summaries in one request")


async def check_reset(process: Process) -> None:
    """The context begins with one note, and what was said behind it is there."""
    storage = await process.harness.session.store.settled()
    (root,) = await conversations(storage)
    resets = [e for e in await own_entries(storage, root) if e.kind == ResetEntry.KIND]
    if len(resets) > 1:
        raise LawBroken(2, f"{len(resets)} resets")


def _scenario(name: str, start: Any, turns: Any = model, **options: Any) -> Scenario:
    chosen = {"registry": tools, "streams": 2, "check": check_summaries, **options}
    return Scenario(name, start, turns=turns, **chosen)


COMPACTIONS = [
    _scenario("summary asked for", asked_for),
    _scenario("summary asked for at work", at_work, finish=at_work),
    _scenario("summary stopped", stopped),
    _scenario("summary overtaken by a reset", overtaken),
    _scenario("summary tried again", asked_for, turns=Unlucky()),
    _scenario("summary by a hook", asked_for, registry=own_summary),
    _scenario(
        "summary in the background",
        lambda process: talk(process, 7),
        settings=small,
        window=WINDOW,
        finish=lambda process: talk(process, 7),
    ),
    _scenario(
        "summary to wait for",
        lambda process: talk(process, 8),
        settings=lambda: small(0),
        window=WINDOW,
        finish=lambda process: talk(process, 8),
    ),
    _scenario(
        "summary since the provider wants it",
        lambda process: talk(process, 4),
        turns=too_long,
        finish=lambda process: talk(process, 4),
    ),
    _scenario("reset in a round", reset_in_round, check=check_reset, finish=reset_in_round),
    _scenario("handoff", hand_off, turns=handing_off, registry=with_history, check=check_reset, finish=hand_off),
]
"""Summaries, resets and handoffs."""
