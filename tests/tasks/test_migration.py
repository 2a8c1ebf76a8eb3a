"""Stored tasks meet the code that is installed now."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from perdure.storage.records import Task
from perdure.tasks.decisions import Next
from perdure.tasks.definition import StoredTask, TaskDefinition, phase, task, task_definition
from perdure.tasks.migration import fit
from perdure.tasks.states import Checkpoint, Pending, state_of
from perdure.tasks.wakes import Time
from tests.tasks.shop import PAYMENT, pending, standing

Migrate = Callable[[StoredTask, int], Any]
OLD = msgspec.structs.replace(standing(Pending(Checkpoint("pay", {"n": 1}), Time(), 2)), version=1)


class Installed:
    """A catalog with one task, or none."""

    def __init__(self, definition: TaskDefinition | None) -> None:
        self._definition = definition

    def task(self, kind: str) -> TaskDefinition | None:
        """The task's code, whatever its kind."""
        return self._definition


def moved(stored: StoredTask, from_version: int) -> StoredTask:
    """What a good migration does: new names, and what was missing."""
    return StoredTask({**stored.input, "amount": from_version}, "charge", {"attempt": stored.arguments["n"]})


def installed(migrate: Migrate | None, version: int = 2) -> Installed:
    """A catalog with a payment that migrates so."""

    class Changed:
        card: str
        amount: int

        @phase(first=True)
        async def charge(self, run: Any, attempt: int = 1) -> Next[Any]:
            return Next()

        @phase
        async def check(self, run: Any, needed: int) -> Next[Any]:
            return Next()

    if migrate is not None:
        Changed.migrate = staticmethod(migrate)  # type: ignore[attr-defined]
    return Installed(task_definition(task("shop.payment", version=version)(Changed)))


def fitted(catalog: Installed, record: Task) -> tuple[TaskDefinition, Task, bool]:
    found = fit(catalog, record)
    assert not isinstance(found, str), found
    return found


def test_code_of_the_same_version_takes_the_record_as_it_is() -> None:
    record = pending()
    definition, same, changed = fitted(Installed(PAYMENT), record)
    assert (definition, same, changed) == (PAYMENT, record, False)
    assert same is record


def test_an_older_record_is_migrated_with_its_wake_and_its_count() -> None:
    definition, record, changed = fitted(installed(moved), OLD)
    assert (record.version, changed) == (2, True)
    assert definition.decode_input_bytes(record.input).amount == 1
    assert state_of(record) == Pending(Checkpoint("charge", {"attempt": 1}), Time(), 2)
    assert msgspec.structs.replace(record, version=1, input=OLD.input, state=OLD.state) == OLD


def test_the_migration_gets_copies() -> None:
    def greedy(stored: StoredTask, from_version: int) -> StoredTask:
        stored.arguments.clear()
        stored.input.clear()
        raise RuntimeError("no")

    assert isinstance(fit(installed(greedy), OLD), str)
    assert state_of(OLD).checkpoint.arguments == {"n": 1}


def raising(stored: StoredTask, from_version: int) -> StoredTask:
    raise KeyError("card")


BLOCKED: list[tuple[Installed, str]] = [
    (Installed(None), "no code for task kind shop.payment"),
    (installed(None), "no migrate from version 1 to 2"),
    (installed(raising), "migrating shop.payment from version 1 failed"),
    (installed(lambda stored, _: StoredTask({"card": 5, "amount": 1}, "charge", {})), "/card"),
    (installed(lambda stored, _: StoredTask(stored.input, "charge", {})), "amount"),
    (installed(lambda stored, _: moved(stored, 1).__class__(moved(stored, 1).input, "gone", {})), "no phase 'gone'"),
    (installed(lambda stored, _: StoredTask(moved(stored, 1).input, "charge", {"attempt": "1"})), "attempt"),
    (installed(lambda stored, _: StoredTask(moved(stored, 1).input, "charge", {"old": 1})), "old"),
    (installed(lambda stored, _: StoredTask(moved(stored, 1).input, "check", {})), "needed"),
    (installed(lambda stored, _: None), "failed"),
]


@pytest.mark.parametrize(("catalog", "why"), BLOCKED)
def test_a_record_that_fits_no_code_is_blocked_and_says_why(catalog: Installed, why: str) -> None:
    found = fit(catalog, OLD)
    assert isinstance(found, str)
    assert why in found


def test_a_record_of_newer_code_is_blocked() -> None:
    found = fit(installed(moved), msgspec.structs.replace(OLD, version=3))
    assert isinstance(found, str)
    assert "version 3" in found
