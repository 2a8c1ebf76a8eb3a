"""Values from outside for tasks of a session: a webhook's, a button's, a command's."""

from typing import Any, Final, TypeVar

from perdure.base.errors import InvalidDefinition, NotFound
from perdure.base.ids import TaskId
from perdure.base.lazy import load
from perdure.extensions.registry import Registry
from perdure.session.session import Session
from perdure.tasks.signals import Signal, SignalResult
from perdure.tasks.tasks import Tasks
from perdure.tasks.transaction import TaskTransaction

T = TypeVar("T")


BUILTIN_SIGNALS: Final = {"perdure.answer": "perdure.extensions.questions:PersonAnswer"}
"""Signals that may be delivered by name though no extension brings them."""


class UnknownSignal(NotFound):
    """No installed extension brings a signal of that name; nothing was stored."""

    code = "unknown_signal"


class Signalling:
    """The part of a harness that delivers. Neither method asks who calls it: the host authenticates the sender."""

    session: Session[TaskTransaction]
    tasks: Tasks

    @property
    def _registry(self) -> Registry:
        raise NotImplementedError

    async def signal(self, task_id: TaskId | int, signal: Signal[T], key: str, value: T) -> SignalResult:
        """Deliver a value to a live task under a key; returns once that is stored.

        `delivered`: stored, and kept if the task does not sleep on the key yet. `duplicate`: the key holds a value
        already, which stays. `invalid`: it does not fit the signal's type. `closed`: the task has ended, is ending or
        being aborted, or the key's deadline has passed. `not_found`: no such task. Starts scheduling.
        """
        async with self.session.transaction() as tx:
            result = await tx.signal(TaskId(task_id), signal, key, value)
        return await self._delivered(result)

    async def signal_json(self, task_id: TaskId | int, signal: Signal[Any] | str, key: str, data: Any) -> SignalResult:
        """Deliver raw JSON in the same way, to a signal or to the name of an installed one. Raises `UnknownSignal`."""
        token = signal_token(self._registry, signal)
        async with self.session.transaction() as tx:
            result = await tx.signal_json(TaskId(task_id), token, key, data)
        return await self._delivered(result)

    async def questions(self) -> list[Any]:
        """The questions that wait for a person, the oldest first: `OpenQuestion`s, as stored. `watch_tasks` shows
        them as they come and go."""
        read = load("perdure.harness.questions:open_questions")
        found: list[Any] = await read(await self.session.store.settled(), self.session.clock.now())
        return found

    async def answer(self, question_id: str, answer: str | bool, *, note: str = "", by: str = "") -> SignalResult:
        """Answer an open question by its id; returns once that is stored. The first answer counts.

        `delivered`: stored. `duplicate`: somebody has answered. `invalid`: none of the choices, or an approval that is
        neither yes nor no. `closed`: its deadline has passed, or nobody asks any more. `not_found`: it was never asked.
        Starts scheduling. Raises `NoQuestion` for what is no question's id, `InvalidValue` for a note that is none.
        """
        reply = load("perdure.harness.questions:reply")(answer, note, by)
        async with self.session.transaction() as tx:
            result: SignalResult = await load("perdure.harness.questions:answer")(tx, question_id, reply)
        return await self._delivered(result)

    async def _delivered(self, result: SignalResult) -> SignalResult:
        if result in ("delivered", "closed"):
            await self.tasks.resume()
        return result


def signal_token(registry: Registry, signal: Signal[Any] | str) -> Signal[Any]:
    """A signal, or the one of a name. Raises `UnknownSignal`."""
    if isinstance(signal, Signal):
        return signal
    if not isinstance(signal, str):
        raise InvalidDefinition(f"not a signal: {signal!r}")
    builtin = BUILTIN_SIGNALS.get(signal)
    found: Signal[Any] | None = load(builtin) if builtin else registry.snapshot().signal(signal)
    if found is None:
        raise UnknownSignal(f"no installed extension brings a signal {signal!r}")
    return found
