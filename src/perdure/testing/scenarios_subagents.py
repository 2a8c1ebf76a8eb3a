"""The tools that start subagents, as scenarios for the crash explorer."""

from collections import Counter
from typing import Any

from perdure.base.ids import ROOT, TaskId
from perdure.extensions.registry import Registry
from perdure.models.messages import UserMessage
from perdure.models.protocol import ModelRequest
from perdure.testing.crash import Process, Scenario
from perdure.testing.dump import conversations
from perdure.testing.laws import LawBroken
from perdure.testing.scenarios import ask, tools
from perdure.testing.scenarios_waiting import results
from perdure.testing.turns import Script, TurnFunction, TurnLike, call, say
from perdure.tools.subagents import subagents

REPORT = "Message from your subagent "


def office(process: Process) -> Registry:
    """The shop, and the tools that start subagents."""
    registry = tools(process)
    registry.install(subagents())
    return registry


def offices(*parent: TurnLike, child: list[TurnLike]) -> TurnFunction:
    """One script for whoever may start others, one for those whom they start; a report is answered by a word."""
    scripts = {True: Script(list(parent)), False: Script(child)}

    def turn(request: ModelRequest) -> TurnLike:
        starts = any(tool.name == "agents" for tool in request.tools)
        newest = next(said for said in reversed(request.messages) if isinstance(said, UserMessage))
        if starts and str(newest.content).startswith(REPORT):
            return say("Heard.")
        return scripts[starts](request)

    return turn


def agents(action: str, name: str | None = None, message: str | None = None) -> Any:
    """A call of `agents`."""
    given = {"action": action, "name": name, "message": message}
    return call("agents", {key: value for key, value in given.items() if value is not None})


async def check_owners(process: Process) -> None:
    """Each call and each anchor has one conversation; each subagent pays once at most."""
    owners: Counter[TaskId] = Counter()
    for record in await conversations(process.storage.real):
        if record.owner is not None:
            owners[record.owner] += 1
    if any(count > 1 for count in owners.values()):
        raise LawBroken(2, f"subagents of the same owner: {owners}")
    if process.ledger.count("pay") > len(owners):
        raise LawBroken(2, f"{process.ledger.count('pay')} payments by {len(owners)} subagents")


async def check_jobs(process: Process) -> None:
    """What each job came to is read by whoever gave it."""
    await check_owners(process)
    found = await results(process)
    if any(text != "Paid for you." for text in found):
        raise LawBroken(3, f"the model reads {found}")


async def reports(process: Process) -> list[str]:
    """The messages of subagents that the root has got."""
    root = await process.harness.conversation(ROOT)
    texts = [str(message.content) for message in await root.messages() if isinstance(message, UserMessage)]
    return [text for text in texts if text.startswith(REPORT)]


async def check_reported(process: Process) -> None:
    """One message came, and the subagent is idle."""
    await check_owners(process)
    found = await reports(process)
    if found != [f"{REPORT}ana:\nPaid for you."]:
        raise LawBroken(3, f"reports: {found}")


async def check_waited(process: Process) -> None:
    """The answer came as the waiting call's result, or as a message: once."""
    await check_owners(process)
    said, waited = await reports(process), (await results(process))[-1]
    as_result = waited == "ana: Paid for you."
    if len(said) + as_result != 1 or not (as_result or waited == "no answers are to come"):
        raise LawBroken(3, f"the wait gave {waited!r}, and there are reports {said}")


async def check_stopped(process: Process) -> None:
    """It is stopped: nothing of it goes on, and if it had answered before that, that came once."""
    await check_owners(process)
    if len(await reports(process)) > 1:
        raise LawBroken(3, "an answer came twice")
    left = [row["kind"] for row in process.harness.inspect()["tasks"]]
    if left:
        raise LawBroken(6, f"after the stop there are {left}")


async def go_and_run_out(process: Process) -> None:
    """Ask, and let what works in the background come to its end."""
    await ask("go")(process)
    await process.run_out()


PAYS: list[TurnLike] = [call("pay", {"cents": 5}), say("Paid for you.")]
JOB = call("subagent", {"task": "pay"})
SPAWN = agents("spawn", "ana", "pay")


def _scenario(name: str, turns: TurnFunction, check: Any, streams: int = 2) -> Scenario:
    return Scenario(
        name, go_and_run_out, turns=turns, registry=office, finish=go_and_run_out, check=check, streams=streams
    )


SUBAGENTS = [
    _scenario("a job for a subagent", offices(JOB, say("Done."), child=PAYS), check_jobs),
    _scenario("jobs side by side", offices([JOB, JOB], say("Done."), child=PAYS), check_jobs, streams=3),
    _scenario("a named subagent reports", offices(SPAWN, say("Started."), child=PAYS), check_reported),
    _scenario("a named subagent is waited for", offices(SPAWN, agents("wait"), say("Done."), child=PAYS), check_waited),
    _scenario(
        "a named subagent is stopped", offices(SPAWN, agents("stop", "ana"), say("Stopped."), child=PAYS), check_stopped
    ),
]
"""Subagents of a call, and of a conversation."""
