"""R-230, R-231, R-234, R-235: what counts as active time, and what as silence."""

from typing import Any

import pytest

from perdure.subagents.engine.activity import Activity
from perdure.subagents.protocol import News


def heard(activity: Activity, *lines: tuple[float, str, dict[str, Any]]) -> None:
    for now, what, more in lines:
        activity.hear(News(what=what, **more), now)  # type: ignore[arg-type]


def test_r230_requests_and_tools_count_once_side_by_side_and_pauses_do_not() -> None:
    activity = Activity(0.0)
    heard(activity, (1, "request", {}), (3, "answer", {"stop": "tools"}))
    heard(activity, (3, "tool", {"name": "bash", "call": "1"}), (4, "tool", {"name": "read", "call": "2"}))
    heard(activity, (6, "tool-end", {"call": "1"}), (7, "tool-end", {"call": "2"}))
    assert activity.active(100.0) == 6.0
    heard(activity, (100, "request", {}), (101, "answer", {"stop": "error", "error": "529"}), (101, "retry", {}))
    assert activity.active(160.0) == 7.0, "the pause before another attempt"
    assert not activity.counts


def test_r230_a_question_and_what_is_parked_take_no_active_time() -> None:
    activity = Activity(0.0, active=2.0)
    heard(activity, (0, "tool", {"name": "ask", "call": "1"}), (0, "question", {"qid": "q"}), (0, "parked", {}))
    assert activity.active(3600.0) == 2.0
    heard(activity, (3600, "active", {}), (3600, "question-closed", {}), (3600, "request", {}))
    assert activity.active(3601.0) == 3.0
    heard(activity, (3602, "tool", {"name": "approve", "call": "2"}), (3602, "answer", {}), (3604, "parked", {}))
    assert activity.active(9999.0) == 6.0, "until it parked"


def test_r231_a_silent_tool_counts_while_it_runs() -> None:
    activity = Activity(0.0)
    heard(activity, (0, "tool", {"name": "bash", "call": "1"}))
    assert activity.active(50.0) == 50.0
    assert activity.command(600.0) == "bash for 10 min"


def test_r232_active_time_never_decreases() -> None:
    activity = Activity(0.0)
    seen = [0.0]
    for now, what in enumerate(("request", "tool", "answer", "parked", "active", "tool-end", "request", "answer")):
        activity.hear(News(what=what, name="bash", call="1"), float(now))  # type: ignore[arg-type]
        seen.append(activity.active(float(now)))
    assert seen == sorted(seen)


@pytest.mark.parametrize("what", ["request", "progress", "tool", "retry"])
def test_r234_whatever_is_heard_is_a_sign_of_life(what: str) -> None:
    activity = Activity(0.0)
    heard(activity, (500, what, {}))
    assert activity.silent_since() == 500


def test_r235_errors_alone_are_no_progress_and_streamed_output_is() -> None:
    activity = Activity(0.0)
    assert activity.stuck_since() is None
    for now in range(10, 700, 60):
        error = {"stop": "error", "error": "529 overloaded"}
        heard(activity, (now, "request", {}), (now + 1, "answer", error), (now + 1, "retry", {"error": "529"}))
    assert activity.stuck_since() == 10
    assert activity.retrying == "529"
    heard(activity, (700, "request", {}), (701, "progress", {}))
    assert activity.stuck_since() is None


def test_r235_b103_a_question_suspends_the_clocks_and_starts_them_afresh() -> None:
    activity = Activity(0.0)
    heard(activity, (10, "question", {"qid": "q"}), (10, "parked", {}))
    assert activity.silent_since() is None
    heard(activity, (5000, "active", {}), (5000, "question-closed", {}))
    assert activity.silent_since() == 5000


def test_r256_refusals_of_a_used_up_window_are_counted_in_a_row() -> None:
    activity = Activity(0.0)
    used_up = {"stop": "error", "error": "You have reached your usage limit"}
    heard(activity, (1, "answer", used_up), (2, "answer", {"stop": "error", "error": "529"}), (3, "answer", used_up))
    assert len(activity.refusals) == 1
    heard(activity, (4, "answer", used_up))
    assert len(activity.refusals) == 2
    heard(activity, (5, "answer", {"stop": "end"}))
    assert activity.refusals == []
