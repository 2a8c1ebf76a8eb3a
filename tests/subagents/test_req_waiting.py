"""Why a call waits: what describe shows and what the log tells are one decision."""

import random
from itertools import pairwise
from typing import Any, get_args

import pytest

from perdure import Harness
from perdure.subagents import rows
from perdure.subagents.describe import describe_call
from perdure.subagents.engine.retiring import retire
from perdure.subagents.engine.sealing import seal
from perdure.subagents.engine.silence import end_silence, raise_silence
from perdure.subagents.state import Call, CallDoc, EventDoc, Reason, Waiting, Workflow
from perdure.subagents.waiting import moves, waits


@pytest.mark.parametrize("seed", range(12))
async def test_r374_r375_whatever_happens_describe_and_the_log_agree(seed: int) -> None:
    chance = random.Random(seed)
    async with Harness.open("memory:") as harness:
        workflow = Workflow(wid="w", request="r", sender="s", form="tasks", cwd="/", created=0.0, digest="")
        workflow.calls = workflow.open = ["a", "b"]
        call = Call(wid="w", key="a", agent="worker", spec={}, fingerprint="f")
        async with harness.session.transaction() as tx:
            await rows.put_workflow(tx, workflow)
            await rows.put_call(tx, call)
        for step in range(25):
            async with harness.session.transaction() as tx:
                match "end" if step == 24 else chance.choice(["waits", "waits", "moves", "silent", "heard"]):
                    case "waits":
                        reason: Any = chance.choice(get_args(Reason))
                        await waits(tx, workflow, call, Waiting(reason=reason, detail=str(step), since=float(step)))
                    case "moves":
                        await moves(tx, workflow, call)
                    case "silent":
                        await raise_silence(tx, workflow, call, "nothing heard")
                    case "heard":
                        await end_silence(tx, workflow, call)
                    case "end" if seed % 2:
                        await rows.put_call(tx, call)
                        await seal(tx, "w", "a", 1, {"status": "stopped"})
                    case _:
                        await retire(tx, workflow, call)
                if step < 24:
                    await rows.put_call(tx, call)
            stored = await rows.need(harness.session, CallDoc, "w/a")
            shown = (await describe_call(harness.session, stored)).get("waiting")
            logged = [one for one in await rows.rows(harness.session, EventDoc) if one.type in ("waiting", "moving")]
            told = logged[-1].data.get("reason") if logged else None
            assert told == (None if shown is None else shown["reason"]), step
            for one, other in pairwise(logged):
                assert one.data.get("reason") != other.data.get("reason"), "another detail is no news"
        assert told is None, "it is told to move at its end"
