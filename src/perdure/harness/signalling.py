"""How the outside reaches the tasks of a session: it starts them, and delivers values to them."""

from typing import Any, Final, TypeVar

from perdure.base.errors import InvalidDefinition, NotFound
from perdure.base.ids import ROOT, ConversationId, TaskId
from perdure.base.lazy import load
from perdure.extensions.registry import Registry
from perdure.harness.actions import Actions
from perdure.session.session import Session
from perdure.tasks.signals import Signal, SignalResult
from perdure.tasks.tasks import Tasks, Wake
from perdure.tasks.transaction import TaskTransaction

T = TypeVar("T")


BUILTIN_SIGNALS: Final = {"perdure.answer": "perdure.extensions.questions:PersonAnswer"}
"""Signals that may be delivered by name though no extension brings them."""


class UnknownSignal(NotFound):
    """No installed extension brings a signal of that name; nothing was stored."""

    code = "unknown_signal"


class Signalling:
    """The part of a harness that starts tasks and delivers to them. No method asks who calls it: the host
    authenticates the sender."""

    session: Session[TaskTransaction]
    tasks: Tasks
    actions: Actions

    @property
    def _registry(self) -> Registry:
        raise NotImplementedError

    async def start(
        self,
        task: Any,
        *,
        conversation: ConversationId | int = ROOT,
        background: bool = False,
        request_id: str | None = None,
    ) -> TaskId:
        """Create a task from its input, owned by a conversation; returns once that is stored. Starts scheduling.

        With a `request_id` this is exactly-once: the same id with the same input gives the first task, also when that
        has ended, with another it raises `RequestConflict`. `background`: it holds up no idleness, and an ordinary
        abort leaves it alone. Raises `InvalidDefinition` if its code is not installed.
        """
        create = load("perdure.harness.starting:start")
        async with self.session.transaction() as tx:
            id: TaskId = await create(
                tx, task, ConversationId(conversation), background=background, request_id=request_id
            )
        await self.tasks.resume()
        return id

    async def wait_parked(self) -> Wake:
        """Wait until nothing could run any more: all has ended or is parked, and stored. Starts scheduling.

        Returns `wake()` as it is then: a host may close the session, and has to open it again at `wake().at`, if that
        is a time, or for a signal, an answer or an input. Raises what ended the session if that happens before.
        """
        return await self.actions.wait_parked()

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
