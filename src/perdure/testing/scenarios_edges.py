"""The awkward turns of waiting: early values, gates that fail or change what is asked, a word after a round."""

from typing import Any

from perdure.extensions.api import HookContext, ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.extensions.results import Block, Sleep, ToolRound
from perdure.models.messages import ToolCall, UserMessage
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun
from perdure.testing.crash import Process, Scenario
from perdure.testing.laws import LawBroken
from perdure.testing.scenarios import ask
from perdure.testing.scenarios_gates import judge
from perdure.testing.scenarios_waiting import HOUR, START, Word, parked, results, tell, when_parked
from perdure.testing.turns import call, say


def fast_build(process: Process) -> Registry:
    """A build whose webhook is faster than the call that triggers it."""
    extension = Extension("ci", signals=[Word])

    @extension.tool(replay="safe")
    async def run_ci(ctx: ToolContext) -> Any:
        """Run the build."""
        state = await ctx.read_signal(Word, "done")
        if state is not None:
            return f"build {state.value}"
        key = await ctx.memo("ci.run", f"run of process {process.number}")
        process.ledger.ran(ctx, "trigger", unsafe=False, token=key)
        said = [await tell(process, ctx.task_id, "done", "passed"), await tell(process, ctx.task_id, "done", "failed")]
        if said != ["delivered", "duplicate"]:
            raise LawBroken(4, f"a running call took {said}")
        return Sleep(signals=[Word.key("done")])

    return Registry([extension])


async def check_fast(process: Process) -> None:
    """The first value is what the model reads, and it was asked for once the value was there no more."""
    if await results(process) != ["build passed"]:
        raise LawBroken(3, f"the model reads {await results(process)}")


@task("scenario.listener")
class Listener:
    """Waits for two values, one after the other."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[Any]:
        """Sleeps on the first."""
        return run.sleep(self.first, [Word.key("one")])

    @phase
    async def first(self, run: TaskRun) -> Next[Any]:
        """Sleeps on the second, which may be there."""
        return run.sleep(self.second, [Word.key("two")], run.now() + HOUR)

    @phase
    async def second(self, run: TaskRun) -> Next[Any]:
        """Tells both."""
        values = [await run.read_signal(Word, key) for key in ("one", "two")]
        return run.complete([None if state is None or state.expired else state.value for state in values])


def listening(process: Process) -> Registry:
    """Code for the listener."""
    return Registry([Extension("listening", tasks=[Listener], signals=[Word])])


async def every_answer(process: Process) -> None:
    """Every answer that a sender can get; what was delivered is what the task ends with."""
    harness, notes = process.harness, process.history.notes
    id = await harness.start(Listener(), background=True, request_id="listen")
    if await harness.signal(4711, Word, "one", "x") != "not_found":
        raise LawBroken(3, "a task that never was took a value")
    for key in ("two", "one"):
        if await harness.signal_json(id, Word, key, 7) not in ("invalid", "closed"):
            raise LawBroken(3, "a value of another type was taken")
        first = await tell(process, id, key, f"{key} by process {process.number}")
        again = await harness.signal(id, Word, key, "another")
        if first == "delivered" and again not in ("duplicate", "closed"):
            raise LawBroken(3, f"a second value was {again}")
    ended = await harness.tasks.wait(id)
    for at, key in enumerate(("one", "two")):
        told = notes.get(f"{id} {key}")
        if told is not None and ended.result(list[str])[at] != told:
            raise LawBroken(3, f"a sender was told that {told} is taken, the task ended with {ended}")
    if await harness.signal(id, Word, "one", "late") != "closed":
        raise LawBroken(3, "a task that has ended took a value")


# gates


def failing(process: Process) -> Registry:
    """A shop with three gates: one raises, one answers nonsense, one is fine and comes too late."""
    shop, gates = Extension("shop"), Extension("gates")

    @shop.tool
    async def buy(ctx: ToolContext, what: str) -> str:
        """Buy."""
        process.ledger.ran(ctx, "buy")
        return f"bought {what}"

    @gates.before_tool
    async def raises(ctx: HookContext, asked: ToolCall) -> Any:
        if asked.arguments["what"] == "tea":
            raise RuntimeError("its program was killed")
        return None

    @gates.before_tool
    async def nonsense(ctx: HookContext, asked: ToolCall) -> Any:
        return True

    return Registry([shop, gates])


async def check_nothing_bought(process: Process) -> None:
    """No gate that failed let a call through."""
    texts = await results(process)
    if process.ledger.count("buy") or len(texts) != 2:
        raise LawBroken(2, f"bought {process.ledger.count('buy')} times, the model reads {texts}")
    for text, gate in zip(texts, ("raises", "nonsense"), strict=True):
        if not text.startswith("blocked: gate ") or gate not in text:
            raise LawBroken(2, f"the model reads {text!r} of the gate {gate}")


def substituting(process: Process) -> Registry:
    """A gate that asks about what is bought, behind one that changes it after two hours."""
    shop, gates = Extension("shop", signals=[Word]), Extension("gates")

    @shop.tool
    async def buy(ctx: ToolContext, what: str) -> str:
        """Buy."""
        process.ledger.ran(ctx, "buy")
        return f"bought {what}"

    @gates.before_tool
    async def sold_out(ctx: HookContext, asked: ToolCall) -> Any:
        return asked.replace(arguments={"what": "coffee"}) if ctx.now() >= START + 2 * HOUR else None

    @gates.before_tool
    async def approve(ctx: HookContext, asked: ToolCall) -> Any:
        key = f"buy/{asked.arguments['what']}"
        state = await ctx.read_signal(Word, key)
        if state is None:
            return Sleep(signals=[Word.key(key)])
        return None if state.value == "yes" else Block(f"not {asked.arguments['what']}")

    return Registry([shop, gates])


async def yes_to_tea(process: Process, submission: Any) -> None:
    """A person says yes to tea, and no to the coffee that it has become."""
    if process.clock.now() < START + 2 * HOUR:
        await process.clock.jump_to(START + 2 * HOUR)
    for id in parked(process):
        await tell(process, id, "buy/tea", "yes")

    async def asked_anew() -> bool:
        keys = [row.get("signals") for row in process.harness.inspect()["tasks"]]
        return [["scenario.word", "buy/coffee"]] in keys or await submission.status() in ("done", "unanswered")

    await process.until(asked_anew)
    for id in parked(process):
        await tell(process, id, "buy/coffee", "no")


async def check_not_bought(process: Process) -> None:
    """A yes to other arguments counts for nothing."""
    if process.ledger.count("buy") or await results(process) != ["blocked: not coffee"]:
        raise LawBroken(2, f"bought {process.ledger.count('buy')} times, the model reads {await results(process)}")


# a word after a round


@task("scenario.adviser")
class Adviser:
    """Shows a round to a person, and says to the agent what they say."""

    @phase(first=True)
    async def show(self, run: TaskRun) -> Next[Any]:
        """Sleeps."""
        return run.sleep(self.advised, [Word.key("verdict")])

    @phase
    async def advised(self, run: TaskRun) -> Next[Any]:
        """Steers."""
        state = await run.read_signal(Word, "verdict")
        if state is not None:
            request = f"advice of {run.task_id}"
            await run.conversation().submit(state.value, when_busy="steer", request_id=request)
        return run.complete()


def advised(process: Process) -> Registry:
    """The first round is shown to a person."""
    extension = Extension("advised", tasks=[Adviser], signals=[Word])

    @extension.tool(replay="safe")
    async def dig(ctx: ToolContext) -> str:
        """Dig."""
        process.ledger.ran(ctx, "dig", unsafe=False)
        return "nothing"

    @extension.after_tools
    async def show(ctx: HookContext, made: ToolRound) -> Any:
        return [Adviser()]

    return Registry([extension])


async def check_advice(process: Process) -> None:
    """What the person said is in the transcript, once, before the next answer."""
    said = [m.content for m in await process.root.messages() if isinstance(m, UserMessage)]
    if said.count("go on") != 1 or said[:2] != ["go", "go on"]:
        raise LawBroken(3, f"people said {said}")


ADVISE = judge("go on", "scenario.adviser")
EDGES = [
    Scenario(
        "a webhook before the park",
        ask("go"),
        turns=[call("run_ci"), say("It is known.")],
        registry=fast_build,
        finish=ask("go"),
        check=check_fast,
    ),
    Scenario("every answer to a sender", every_answer, registry=listening, finish=every_answer),
    Scenario(
        "gates that fail",
        ask("go"),
        turns=[call("buy", {"what": "tea"}), call("buy", {"what": "coffee"}), say("Nothing.")],
        registry=failing,
        finish=ask("go"),
        check=check_nothing_bought,
    ),
    Scenario(
        "other arguments than approved",
        when_parked(yes_to_tea),
        turns=[call("buy", {"what": "tea"}), say("Done.")],
        registry=substituting,
        finish=when_parked(yes_to_tea),
        check=check_not_bought,
    ),
    Scenario(
        "a person steers after a round",
        ADVISE,
        turns=[call("dig"), say("I go on.")],
        registry=advised,
        finish=ADVISE,
        check=check_advice,
    ),
]
"""Early values, every answer of a delivery, gates that fail and change arguments, a steer by a hook's task."""
