"""Documents: typed JSON state in the same commits as the transcript; forks begin with the value at the fork entry."""

import asyncio
from typing import TypedDict

from perdure import ROOT, Document, Harness, InvalidValue
from perdure.testing.scripted_model import ScriptedModel, say


class Plan(TypedDict):
    stops: list[str]


TripPlan: Document[Plan] = Document(
    "trip.plan", Plan, history="rewindable", fork="as_of", initial=lambda: {"stops": []}
)


async def main() -> None:
    async with Harness.open("memory:", models=ScriptedModel([say("Noted.")])) as harness:
        root = await harness.root(model="scripted:model")
        async with harness.session.transaction() as tx:
            plan = await tx.doc(TripPlan, ROOT)
            plan["stops"].append("Vienna")
        answer = await (await root.submit("Vienna first")).wait()
        async with harness.session.transaction() as tx:
            plan = await tx.doc(TripPlan, ROOT)
            plan["stops"] += ["Graz", "Trieste"]
        print("now:              ", await harness.session.snapshot(TripPlan, ROOT))
        print("at the answer:    ", await harness.session.snapshot_at(TripPlan, ROOT, answer.entry_id))
        fork = await root.fork(answer.entry_id)
        print("a fork at it has: ", await harness.session.snapshot(TripPlan, fork.id))
        try:
            async with harness.session.transaction() as tx:
                plan = await tx.doc(TripPlan, ROOT)
                plan["stops"].append(7)  # type: ignore[arg-type]  # a checker says so too
        except InvalidValue as error:
            print("refused:          ", error.path)
        print("unchanged:        ", await harness.session.snapshot(TripPlan, ROOT))


asyncio.run(main())
