"""Values from outside for tasks of a session: a webhook's, a button's, a command's."""

from typing import Any, TypeVar

from perdure.base.errors import InvalidDefinition, NotFound
from perdure.base.ids import TaskId
from perdure.extensions.registry import Registry
from perdure.session.session import Session
from perdure.tasks.signals import Signal, SignalResult
from perdure.tasks.tasks import Tasks
from perdure.tasks.transaction import TaskTransaction

T = TypeVar("T")


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
        if isinstance(signal, str):
            found = self._registry.snapshot().signal(signal)
            if found is None:
                raise UnknownSignal(f"no installed extension brings a signal {signal!r}")
            signal = found
        elif not isinstance(signal, Signal):
            raise InvalidDefinition(f"not a signal: {signal!r}")
        async with self.session.transaction() as tx:
            result = await tx.signal_json(TaskId(task_id), signal, key, data)
        return await self._delivered(result)

    async def _delivered(self, result: SignalResult) -> SignalResult:
        if result in ("delivered", "closed"):
            await self.tasks.resume()
        return result
