"""Work that waits for the world: signals, deadlines, times, children. As scenarios for the crash explorer."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from perdure.base.ids import ROOT, TaskId
from perdure.extensions.api import ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.extensions.results import Sleep, Wait
from perdure.extensions.settled import SubmissionSettled
from perdure.models.messages import ToolResultMessage
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.outcomes import Completed
from perdure.tasks.runtime import TaskRun
from perdure.tasks.signals import Signal
from perdure.testing.clock import FakeClock
from perdure.testing.crash import Process, Scenario
from perdure.testing.laws import LawBroken
from perdure.testing.scenarios import ask
from perdure.testing.scenarios_agents import ORDER, family
from perdure.testing.turns import TurnLike, call, say

HOUR: Final = 3600.0
START: Final = FakeClock().now()
WAITS: Final = ("sleeping", "waiting")

Word: Signal[str] = Signal("scenario.word", schema=str)
"""What the world has to say: of a build, to a question, about an approval."""


def ci(replay: Any, timeout: float | None = None) -> Callable[[Process], Registry]:
    """A build that is triggered, waited for, and reported; stopped by its key when nobody wants it any more."""

    def registry(process: Process) -> Registry:
        extension = Extension("ci", signals=[Word])

        @extension.tool(replay=replay)
        async def run_ci(ctx: ToolContext) -> Any:
            """Run the build."""
            unsafe = replay != "safe"
            state = await ctx.read_signal(Word, "done")
            if state is not None:
                process.ledger.ran(ctx, "report", unsafe=unsafe)
                return "never reported" if state.expired else f"build {state.value}"
            key = await ctx.memo("ci.run", f"run of process {process.number}")
            process.ledger.ran(ctx, "trigger", unsafe=unsafe, token=key)
            ctx.diagnostic("triggered")
            until = None if timeout is None else ctx.now() + timeout
            return Sleep(signals=[Word.key("done")], until=until, checkpoint={"build": key})

        @run_ci.cancel
        async def stop(ctx: ToolContext) -> None:
            if ctx.checkpoint != {"build": await ctx.memo("ci.run")}:
                raise LawBroken(4, f"a clean-up got {ctx.checkpoint} of the park")
            process.ledger.ran(ctx, "cancel", unsafe=False)

        return Registry([extension])

    return registry


def parked(process: Process, kind: str = "perdure.tool") -> list[TaskId]:
    """Calls, or tasks of another kind, that are parked."""
    return sorted(t.id for t in process.harness.tasks.index.tasks.values() if t.kind == kind and t.status in WAITS)


async def tell(process: Process, id: TaskId, key: str, value: str) -> str:
    """Say something to a task. What the sender is told is kept: both sides have to agree for ever."""
    process.history.notes["sent"] = True
    result = await process.harness.signal(id, Word, key, value)
    if result == "delivered":
        process.history.notes[f"{id} {key}"] = value
    return result


def when_parked(then: Callable[[Process, Any], Awaitable[Any]]) -> Callable[[Process], Awaitable[None]]:
    """Submit, and once the work is parked let something happen."""

    async def step(process: Process) -> None:
        submission = await process.submit("go", request_id="first")

        async def there() -> bool:
            return bool(parked(process)) or await submission.status() in ("done", "unanswered")

        await process.until(there)
        await then(process, submission)
        await process.settled(submission)

    return step


async def webhook(process: Process, submission: Any) -> None:
    """The build has ended; the service says so twice."""
    for id in parked(process):
        if process.harness.wake().active:
            raise LawBroken(5, "everything is parked, and the session is called active")
        first = await tell(process, id, "done", "passed")
        second = await process.harness.signal(id, Word, "done", "failed")
        if first == "delivered" and second not in ("duplicate", "closed"):
            raise LawBroken(3, f"a second value was {second}")


async def stop(process: Process, submission: Any) -> None:
    """Nobody wants it any more."""
    process.history.notes["parked"] = process.history.notes.get("parked") or bool(parked(process))
    await process.abort()


async def patience(process: Process, submission: Any) -> None:
    """Time passes until the call ends; what comes after that is too late."""
    waiting = parked(process)
    await process.settled(submission)
    for id in waiting:
        if (result := await process.harness.signal(id, Word, "done", "late")) != "closed":
            raise LawBroken(3, f"a value after the deadline was {result}")


async def results(process: Process) -> list[str]:
    """What the model reads of the calls."""
    return [str(m.content) for m in await process.root.messages() if isinstance(m, ToolResultMessage)]


async def check_build(process: Process) -> None:
    """The model reads what the sender was told to be taken; cleaned up is what has parked and will not be asked."""
    ledger, told = process.ledger, any(key.endswith(" done") for key in process.history.notes)
    (text,) = await results(process) or [""]
    if told and not text.startswith(("build passed", "interrupted", "aborted")):
        raise LawBroken(3, f"the sender was told that the build is known, the model reads {text!r}")
    if text.startswith(("build", "never")) and (ledger.count("cancel") or "[diagnostics]\ntriggered" not in text):
        raise LawBroken(2, f"{ledger.count('cancel')} clean-ups of a call that ended by itself with {text!r}")
    if text.startswith("interrupted") and not process.history.notes.get("sent") and ledger.count("cancel"):
        raise LawBroken(2, "a clean-up of a call that was cut off in its first run")
    if text.startswith("interrupted") and (told or ledger.count("report")) and not ledger.count("cancel"):
        raise LawBroken(2, "no clean-up of a call that was cut off in a later run")
    if text.startswith("aborted") and process.history.notes.get("parked") and not ledger.count("cancel"):
        raise LawBroken(2, "a parked call was stopped and nobody cleaned up")


# tasks that ask people


@task("scenario.question")
class Question:
    """Asks a person, for four hours."""

    name: str

    @phase(first=True)
    async def ask(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        return run.sleep(self.answered, [Word.key("answer")], run.now() + 4 * HOUR)

    @phase
    async def answered(self, run: TaskRun) -> Next[str | None]:
        """Goes by the key, whatever woke it."""
        state = await run.read_signal(Word, "answer")
        if state is None or state.expired != (type(run.wake).__name__ == "Expired"):
            raise LawBroken(3, f"woken by {run.wake}, and the key holds {state}")
        return run.complete(None if state.expired else state.value)


def questions(process: Process) -> Registry:
    """Code for the questions."""
    return Registry([Extension("questions", tasks=[Question], signals=[Word])])


async def two_questions(process: Process) -> None:
    """Two questions: one is answered after an hour, the other never."""
    notes = process.history.notes
    if "asked" not in notes:
        async with process.harness.session.transaction() as tx:
            notes["asked"] = [
                tx.create_task(Question(name), conversation=ROOT, background=True) for name in ("one", "two")
            ]
    await process.harness.resume()
    one, two = notes["asked"]
    for id in (one, two):
        if process.harness.tasks.known(id) is None and await process.storage.real.task(id) is None:
            return  # the process died before it was stored
    if process.clock.now() < START + HOUR:
        await process.clock.jump_to(START + HOUR)
    await tell(process, one, "answer", "yes")
    await process.run_out()
    if await process.harness.signal(two, Word, "answer", "late") != "closed":
        raise LawBroken(3, "a question that nobody answered in time takes an answer")
    ends = [await process.harness.tasks.wait(id) for id in (one, two)]
    said = [end.value if isinstance(end, Completed) else end for end in ends]
    if said != ["yes", None]:  # a sender that died before it was told: its value was there in time all the same
        raise LawBroken(3, f"senders were told {notes}, the tasks ended with {said}")


# polling, children, subagents


def poll(process: Process) -> Registry:
    """A tool that looks again after ever longer pauses."""
    extension = Extension("poll")

    @extension.tool
    async def poll(ctx: ToolContext) -> Any:
        """Poll, at most once at each of its times."""
        tries = (ctx.checkpoint or 0) + 1
        process.ledger.ran(ctx, f"poll {tries}")
        return "ready" if tries == 4 else Sleep(until=ctx.now() + 2.0**tries, checkpoint=tries)

    return Registry([extension])


def research(replay: Any) -> Callable[[Process], Registry]:
    """A tool that starts two others by key and parks until they have ended, one after the other."""

    def registry(process: Process) -> Registry:
        extension = Extension("research", signals=[Word])

        @extension.tool
        async def look_up(ctx: ToolContext, topic: str, pause: float) -> Any:
            """Look something up, which takes a while."""
            if ctx.wake is None:
                process.ledger.ran(ctx, f"begin {topic}")
                return Sleep(until=ctx.now() + pause)
            process.ledger.ran(ctx, f"end {topic}")
            return f"all about {topic}"

        @extension.tool(replay=replay)
        async def both(ctx: ToolContext) -> Any:
            """Look two things up, side by side."""
            open_calls = [
                await ctx.start_tool(look_up, {"topic": topic, "pause": pause}, key=topic)
                for topic, pause in (("bees", HOUR), ("ants", 2 * HOUR))
            ]
            done = {*(ctx.checkpoint or []), *getattr(ctx.wake, "ended", ())}
            left = [one.task_id for one in open_calls if one.task_id not in done]
            if left:
                return Wait(on=left, policy="any", checkpoint=sorted(done))
            return "; ".join([str((await one.result()).content) for one in open_calls])

        return Registry([extension])

    return registry


async def check_research(process: Process) -> None:
    """What was begun has ended, unless the call above was cut off in a run of its own."""
    (text,) = await results(process)
    if text != "all about bees; all about ants" and "interrupted" not in text:
        raise LawBroken(2, f"the model reads {text!r}")


def subagents(process: Process) -> Registry:
    """A tool that asks a conversation of its own and sleeps until that has answered, which itself asks a person."""
    extension = Extension("subagents", signals=[Word])

    @extension.tool(replay="safe")
    async def delegate(ctx: ToolContext, what: str) -> Any:
        """Let a helper do it."""
        state = await ctx.read_signal(SubmissionSettled, "answered")
        if state is not None:
            return f"{state.value.status}: {what}"
        here = ctx.conversation()
        entry = await ctx.memo("entry", (await here.entries(limit=1))[0].id)
        child = await here.fork(entry, owner=ctx.task_id, key=f"helper of {ctx.task_id}")
        submission: Any = await child.submit(ORDER + what, request_id="it", notify=(ctx.task_id, "answered"))
        process.acknowledge(child.id, "it", submission)
        return Sleep(signals=[SubmissionSettled.key("answered")], checkpoint="asked")

    @extension.tool(replay="safe")
    async def ask_person(ctx: ToolContext) -> Any:
        """Ask a person."""
        state = await ctx.read_signal(Word, "person")
        return Sleep(signals=[Word.key("person")]) if state is None else f"the person says {state.value}"

    return Registry([extension])


async def answer_person(process: Process) -> None:
    """Everything is parked, in two conversations: then the person answers."""
    submission = await process.submit("go", request_id="first")

    async def there() -> bool:
        return len(parked(process)) == 2 or await submission.status() in ("done", "unanswered")

    await process.until(there)
    for id in parked(process):
        if process.harness.wake() != (False, None):
            raise LawBroken(5, f"everything is parked on signals: {process.harness.wake()}")
        await tell(process, id, "person", "yes")
    await process.settled(submission)


async def check_subagent(process: Process) -> None:
    """The call above has the answer of the one below."""
    if await results(process) != ["done: ask"]:
        raise LawBroken(3, f"the model reads {await results(process)}")


BUILD: list[TurnLike] = [call("run_ci"), say("It is known.")]


def _build(name: str, then: Any, replay: str, timeout: float | None = None) -> Scenario:
    step = when_parked(then)
    return Scenario(name, step, turns=BUILD, registry=ci(replay, timeout), finish=step, check=check_build)


WAITING = [
    _build("a build, by webhook", webhook, "safe"),
    _build("a build, by webhook, never again", webhook, "unsafe"),
    _build("a build with a deadline, by webhook", webhook, "safe", 2 * HOUR),
    _build("a build that never reports", patience, "safe", 2 * HOUR),
    _build("stop while a build is waited for", stop, "safe", 2 * HOUR),
    _build("stop while a build is waited for, never again", stop, "unsafe"),
    Scenario("two questions", two_questions, registry=questions, finish=two_questions),
    Scenario("polling", ask("go"), turns=[call("poll"), say("Ready.")], registry=poll),
    Scenario(
        "parked over children",
        ask("go"),
        turns=[call("both"), say("Read.")],
        registry=research("safe"),
        check=check_research,
        finish=ask("go"),
    ),
    Scenario(
        "parked over children, never again",
        ask("go"),
        turns=[call("both"), say("Read.")],
        registry=research("unsafe"),
        check=check_research,
        finish=ask("go"),
    ),
    Scenario(
        "a subagent asks a person",
        answer_person,
        turns=family([call("delegate", {"what": "ask"}), say("It is done.")], [call("ask_person"), say("Yes.")]),
        registry=subagents,
        finish=answer_person,
        check=check_subagent,
        streams=2,
    ),
]
"""Parked calls and tasks: signals, deadlines, times, children, other conversations."""
