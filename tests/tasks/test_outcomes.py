"""How a task ended, as others read it."""

from typing import Any

import pytest

from perdure.base.errors import InvalidValue
from perdure.tasks.outcomes import Aborted, Completed, Failed, Faulted, NotCompleted, Orphaned, Outcome
from tests.tasks.shop import Receipt

BAD: list[tuple[Outcome, str, str]] = [
    (Failed({"message": "declined"}), "failed", "declined"),
    (Aborted(), "aborted", ""),
    (Aborted("too late"), "aborted", "too late"),
    (Faulted({"message": "boom", "code": "KeyError"}), "faulted", "boom"),
    (Orphaned("no code"), "orphaned", "no code"),
]


def test_a_result_is_decoded_when_it_is_read() -> None:
    outcome = Completed({"number": 1, "note": None})
    assert outcome.completed
    assert (outcome.status, outcome.why) == ("completed", "")
    assert outcome.result(Receipt) == Receipt(1)
    assert outcome.result() == {"number": 1, "note": None}
    with pytest.raises(InvalidValue, match="result"):
        outcome.result(str)


def test_a_reader_may_change_the_result_it_got() -> None:
    outcome = Completed({"rows": [1]})
    outcome.result()["rows"].append(2)
    outcome.result(dict)["rows"].append(3)
    assert outcome.result() == {"rows": [1]}


@pytest.mark.parametrize(("outcome", "status", "why"), BAD)
def test_every_other_end_says_why_and_has_no_result(outcome: Outcome, status: str, why: str) -> None:
    assert not outcome.completed
    assert (outcome.status, outcome.why) == (status, why)
    with pytest.raises(NotCompleted, match=f"ended {status}.*{why}") as caught:
        outcome.result(Any)
    assert caught.value.certain == "stored"


def test_an_outcome_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Completed(1).value = 2  # type: ignore[misc]
