"""The tool that asks people and the gate of approvals, as scenarios for the crash explorer."""

from typing import Any

from perdure.extensions.api import ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.testing.crash import Process, Scenario
from perdure.testing.laws import LawBroken
from perdure.testing.scenarios_waiting import results, when_parked
from perdure.testing.turns import call, say
from perdure.tools.people import approvals, ask_person


def desk(process: Process) -> Registry:
    """A shop, approvals of what is bought there, and a way to ask people."""
    shop = Extension("shop")

    @shop.tool
    async def buy(ctx: ToolContext, what: str) -> str:
        """Buy."""
        process.ledger.ran(ctx, "buy")
        return f"bought {what}"

    return Registry([shop, ask_person, approvals(tools=["buy"])])


async def two_people(process: Process, submission: Any) -> None:
    """Two people answer what is open; what the first one is told is kept."""
    for question in await process.harness.questions():
        first = await process.harness.answer(question.id, "yes", by="ana")
        if first == "delivered":
            process.history.notes["answered"] = True
        second = await process.harness.answer(question.id, "no", by="ben")
        if first != "delivered" or second not in ("duplicate", "closed"):  # closed: the call has ended already
            raise LawBroken(4, f"an open question took {first}, then {second}")
        if any(still.id == question.id for still in await process.harness.questions()):
            raise LawBroken(4, "an answered question is still open")


async def check_answer(process: Process) -> None:
    """Once ana is told that her answer is taken, it is what counts."""
    (text,) = await results(process)
    if text not in ("yes", "bought tea"):
        if process.history.notes.get("answered") and "interrupted" not in text:
            raise LawBroken(2, f"the model reads {text!r}")
        if process.ledger.count("buy") and "interrupted" not in text:
            raise LawBroken(2, f"it was bought, and the model reads {text!r}")
    if await process.harness.questions():
        raise LawBroken(5, "nobody asks any more, and a question is open")


STEP = when_parked(two_people)
PEOPLE = [
    Scenario(
        "the model asks a person",
        STEP,
        turns=[call("ask_person", {"question": "Now?", "choices": ["yes", "no"]}), say("Done.")],
        registry=desk,
        finish=STEP,
        check=check_answer,
    ),
    Scenario(
        "a call is approved",
        STEP,
        turns=[call("buy", {"what": "tea"}), say("Done.")],
        registry=desk,
        finish=STEP,
        check=check_answer,
    ),
]
"""A question and an approval, each answered by two people."""
