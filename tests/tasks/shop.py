"""Tasks that the tests of this room share."""

from dataclasses import dataclass
from typing import Any

from perdure.base.ids import ConversationId, TaskId
from perdure.storage.records import Task as Record
from perdure.tasks.decisions import Decisions, Next
from perdure.tasks.definition import Task, TaskDefinition, phase, task, task_definition
from perdure.tasks.states import Checkpoint, Pending, Running, State, apply_state, new_task


@dataclass
class Receipt:
    """What a payment completes with."""

    number: int
    note: str | None = None


@task("shop.payment", version=2)
class Payment(Task[Receipt]):
    """Charges a card."""

    card: str
    amount: int = 1

    @phase(first=True)
    async def charge(self, run: Any, attempt: int = 1) -> Next[Receipt]:
        """Where it begins."""
        return run.complete(Receipt(1))  # type: ignore[no-any-return]

    @phase
    async def settle(self, run: Any, ids: list[TaskId], note: str | None = None) -> Next[Receipt]:
        """A phase with typed arguments."""
        return run.complete(Receipt(2, note))  # type: ignore[no-any-return]

    @phase
    async def review(self, run: Any, receipt: Receipt, extra: dict[str, Any]) -> Next[Receipt]:
        """A phase with arguments that are objects."""
        return run.complete(receipt)  # type: ignore[no-any-return]

    async def abort(self, run: Any) -> Next[Any]:
        """Gives the money back."""
        return run.aborted()  # type: ignore[no-any-return]


@task("shop.stock")
class Stock:
    """Says nothing about its result."""

    @phase(first=True)
    async def count(self, run: Any) -> Next[Any]:
        """Where it begins."""
        return run.complete()  # type: ignore[no-any-return]


class Deciding(Decisions):
    """What a run and a transaction have in common, without either: it keeps what was decided."""

    def __init__(self, definition: TaskDefinition) -> None:
        self.made: list[Next[Any]] = []
        self._known = definition

    @property
    def _definition(self) -> TaskDefinition:
        return self._known

    def _decide(self, decision: Next[Any]) -> None:
        self.made.append(decision)


PAYMENT = task_definition(Payment)
FIRST = Checkpoint("charge")


def pending(checkpoint: Checkpoint = FIRST, *, id: int = 7) -> Record:
    """A payment that could run."""
    return new_task(
        TaskId(id),
        ConversationId(1),
        "shop.payment",
        2,
        b'{"card":"visa"}',
        Pending(checkpoint),
        owner=None,
        background=False,
        started_at=1000,
    )


def standing(state: State) -> Record:
    """A payment in a state."""
    return apply_state(pending(), state)


def running(checkpoint: Checkpoint = FIRST, **more: Any) -> Record:
    """A payment whose code runs."""
    return standing(Running(checkpoint, **more))
