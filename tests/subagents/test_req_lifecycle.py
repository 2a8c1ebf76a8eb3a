"""Generations beside what the workflow proposed, and what an execution's end means first."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure.subagents.engine.judge import judge
from perdure.subagents.protocol import Evidence
from tests.subagents.place import Place

Make = Callable[..., Place]


def left(**more: Any) -> Evidence:
    return Evidence(**{"marker": True, "task_taken": True, "settled": True, **more})


ALL = {"budget_reached": True, "report": {"outcome": "ok", "summary": "told", "data": None}, "text": "said"}
QUESTION = {"qid": "q", "rev": 1, "text": "?", "task": 1}


@pytest.mark.parametrize(
    ("evidence", "decided", "expected"),
    [
        (left(**ALL), {"stopped": True, "timed_out": True}, ("sealed", "stopped")),
        (left(**ALL), {"timed_out": True}, ("sealed", "timeout")),
        (left(**ALL, question=QUESTION), {}, ("sealed", "budget")),
        (left(**{**ALL, "budget_reached": False}, question=QUESTION), {}, ("asking", "failed")),
        (left(**{**ALL, "budget_reached": False}), {}, ("sealed", "ok")),
        (left(text="said"), {"once": True}, ("sealed", "ok")),
        (left(text="said"), {"schema": True}, ("again", "failed")),
        (left(settled=False, unfinished=["bash"]), {"once": True, "forgiven": True}, ("sealed", "unknown")),
        (left(error="insufficient_quota"), {"forgiven": True}, ("sealed", "failed")),
        (left(error="blocked by content policy"), {}, ("sealed", "failed")),
    ],
)
def test_r094_the_first_that_applies_decides(
    evidence: Evidence, decided: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = judge(evidence, **decided)
    assert (found.outcome, found.status) == expected


def test_r094_a_used_up_window_is_no_loss_and_anything_else_is_one() -> None:
    used_up = judge(left(error="You have reached your usage limit"), losses=4)
    assert (used_up.outcome, used_up.exhausted, used_up.loss) == ("again", True, False)
    assert judge(left(error="connection reset"), losses=3).loss
    last = judge(left(error="connection reset" + "x" * 400), losses=4)
    assert (last.outcome, last.status) == ("sealed", "failed")
    assert last.error is not None
    assert last.error.startswith("lost ×5: connection reset")
    assert len(last.error) <= 310, "R-096: the last error is clipped"


@pytest.mark.slow
async def test_r098_r101_r103_a_list_is_given_what_it_proposed_while_a_follow_up_goes_on(place: Make) -> None:
    here = place({"a": [{"say": "first"}, {"say": "second", "hold": 2.0}], "b": [{"say": "b", "hold": 1.0}]})
    steps = [{"agent": "worker", "task": "A", "key": "a"}, {"agent": "worker", "task": "B", "key": "b"}]
    outcome = await here.run("job", tasks=steps)
    wid = outcome.reply["wid"]
    await here.until("job", lambda found: found["calls"][0]["phase"] == "sealed")
    for _ in range(2):
        sent = await here.client.ask("follow-up", {"to": f"{wid}/a", "message": "More"}, request="more")
        assert sent.reply["generation"] == 2, "R-099: one request opens one generation"
    await here.until("job", lambda found: found["status"] == "done")
    assert (await here.described("job"))["state"] == "running", "R-100: what follows is live work"
    found = await here.sealed("job")
    assert [(one["key"], one["gen"], one["output"]) for one in found["result"]] == [("a", 1, "first"), ("b", 1, "b")]
    assert (found["calls"][0]["gen"], found["calls"][0]["output"]) == (2, "second")
    first, second = found["result"][0]["usage"], found["calls"][0]["usage"]
    assert set(first) == set(second) == {"input", "output", "costUsd"}, "R-110"
