"""What a phase gets: one invocation of one task."""

from collections.abc import Sequence
from typing import Any, TypeVar, overload

from perdure.base import jsonvalue
from perdure.base.errors import InvalidDecision, InvocationEnded, NotFound
from perdure.base.ids import ConversationId, TaskId
from perdure.base.typed import codec
from perdure.session.documents import Document
from perdure.storage.records import Task
from perdure.tasks import signals
from perdure.tasks.decisions import Decisions, Next
from perdure.tasks.definition import TaskDefinition
from perdure.tasks.outcomes import Outcome
from perdure.tasks.signals import Signal, SignalState
from perdure.tasks.states import Running, check_memo_name, decode_memos, outcome_of, state_of, with_memo
from perdure.tasks.transaction import TaskTransaction
from perdure.tasks.wakes import WakeReason

T = TypeVar("T")


class TaskRun(Decisions):
    """One invocation. After it has ended every call raises `InvocationEnded`.

    `wake` tells why parked code runs again; it stays the same if a crash makes this phase run once more. `host` is
    what the room above lends to its own tasks.
    """

    def __init__(self, tasks: Any, record: Task, definition: TaskDefinition, state: Running) -> None:
        self._tasks = tasks
        self._record = record
        self.definition = definition
        self.task_id: TaskId = record.id
        self.conversation_id: ConversationId = record.conversation
        self.wake: WakeReason | None = state.wake
        self.checkpoint = state.checkpoint
        self.host: Any = tasks.host
        self.restarts = state.restarts
        """Opens that found the task running since its last progress."""
        self.cut = state.cut
        """Whether an earlier process ended or closed while the task ran at this checkpoint: what its code does may have
        been done."""
        self.ended = False
        self.decided = False
        """A transaction of this invocation stored a decision: nothing follows it."""
        self.runs_on = False
        """The stored decision leads to another phase at once."""
        self.in_abort = False
        self.broken: InvalidDecision | None = None
        """The first breach of the rule that a decision is the last thing an invocation stores."""
        self.block: TaskTransaction | None = None
        """The block it is in."""
        self._issued: Next[Any] | None = None
        self.stored: Next[Any] | None = None
        """The decision that a transaction of this invocation stored."""

    @property
    def abort_requested(self) -> bool:
        """Whether the task is being aborted. Its code is cancelled then, or is its abort handler."""
        known = self._tasks.known(self.task_id)
        return known is not None and known.abort_requested

    def now(self) -> float:
        """Seconds since the epoch, by the injected clock."""
        self.check_running()
        return float(self._tasks.session.clock.now())

    def transaction(self, *, progress: bool = False) -> TaskTransaction:
        """A block on the line in this task's name; it may decide the task's next step."""
        self.check_running()
        tx: TaskTransaction = self._tasks.session.transaction(progress=progress)
        tx.run = self
        return tx

    @overload
    async def memo(self, name: str) -> Any: ...
    @overload
    async def memo(self, name: str, *, type: type[T]) -> T | None: ...
    @overload
    async def memo(self, name: str, value: T, *, type: Any = None) -> T: ...
    async def memo(self, name: str, value: Any = None, *, type: Any = None) -> Any:
        """A small value stored with the task. With a value: the first writer wins, also across a crash, and the
        stored value comes back. Without: the stored value, or None. Gone when the task ends."""
        self.check_running()
        check_memo_name(name)
        stored = decode_memos(self.record.memos).get(name)
        if stored is None and value is not None:
            json = codec(type, where=f"memo {name}").to_json(value) if type is not None else value
            if type is None:
                jsonvalue.check(json)
            async with self.transaction() as tx:
                record = await self.own_record(tx)
                stored = decode_memos(record.memos).get(name)
                if stored is None:
                    tx.put_task(with_memo(record, name, json))
                    stored = json
        if type is None or stored is None:
            return stored
        return codec(type, where=f"memo {name}").from_json(stored)

    async def read_signal(self, signal: Signal[T], key: str) -> SignalState[T] | None:
        """What a key of this task holds: its value, `expired`, or None while nothing came. Costs no storage access.

        It does not depend on the wake. A value of an older version of the signal is migrated."""
        self.check_running()
        return signals.read(self.record, signal, key)

    async def outcomes(self, ids: Sequence[TaskId]) -> list[Outcome]:
        """How ended tasks ended, in the order asked for. Raises if one is still live or never was."""
        self.check_running()
        return [await self._outcome(id) for id in ids]

    async def read(self, document: Document[T], scope_id: int | None = None, *, key: str | None = None) -> T | None:
        """A document's committed value, or None. Not for changing."""
        self.check_running()
        value: T | None = await self._tasks.session.snapshot(document, scope_id, key=key)
        return value

    def conversation(self, id: ConversationId | None = None) -> Any:
        """A handle on a conversation, by default the task's own: to submit to it, to read it.

        A phase may run again, so submit with a `request_id` made from `task_id`. `notify=(run.task_id, key)` wakes a
        sleep on `SubmissionSettled.key(key)`. Do not wait in memory for the run that waits for this task.
        """
        self.check_running()
        return self.host.handle(self.conversation_id if id is None else id)

    @property
    def record(self) -> Task:
        """The task's record as of the newest commit."""
        known = self._tasks.known(self.task_id)
        return known if isinstance(known, Task) else self._record

    async def own_record(self, tx: TaskTransaction) -> Task:
        """The task's record inside a transaction. Raises `InvocationEnded` if the task no longer runs."""
        record = await tx.task(self.task_id)
        if record is None or record.status != "running":
            raise InvocationEnded(f"task {self.task_id} no longer runs")
        return record

    def issued(self, decision: Next[Any], tx: TaskTransaction) -> None:
        """A transaction of this invocation made a decision; it counts when the transaction is stored."""
        self._issued = decision

    def decision_stored(self, decision: Next[Any], *, runs_on: bool) -> None:
        """The commit with a decision is stored (called by its transaction)."""
        self.stored, self.decided, self.runs_on = decision, True, runs_on

    def break_rules(self, what: str, hint: str = "") -> InvalidDecision:
        """Note that the code went on after its stored decision: the task faults, whatever the code does next."""
        self.broken = self.broken or InvalidDecision(what, hint=hint)
        return self.broken

    def stored_arguments(self) -> dict[str, Any]:
        """The arguments of the checkpoint the task stands at, as stored."""
        arguments: dict[str, Any] = state_of(self.record).checkpoint.arguments
        return arguments

    def check_returned(self, decision: Any) -> None:
        """Refuse a return value that contradicts what was stored, or that comes from a rolled-back block."""
        if self.stored is not None:
            if decision is not self.stored:
                raise self.break_rules("the phase returned something else than the decision its transaction stored")
            if self.broken is not None:
                raise self.broken
        elif not isinstance(decision, Next):
            raise InvalidDecision(
                f"the phase returned {type(decision).__name__} instead of a decision",
                hint="return run.goto(…), run.wait(…), run.sleep(…), run.complete(…) or run.fail(…)",
            )
        elif decision is self._issued:
            raise InvalidDecision("the decision was made in a transaction that was rolled back")

    def check_running(self) -> None:
        """Raise once the invocation has ended."""
        if self.ended:
            raise InvocationEnded("the task's invocation has ended", hint="code that outlives its task can do nothing")

    def _decide(self, decision: Next[Any]) -> None:
        self.check_running()

    @property
    def _definition(self) -> TaskDefinition:
        return self.definition

    async def _outcome(self, id: TaskId) -> Outcome:
        record = await self._tasks.session.store.task(id)
        if record is None:
            raise NotFound(f"no task {id}")
        if record.status != "terminal":
            raise InvalidDecision(f"task {id} has not ended", hint="wait for it first")
        return outcome_of(record)
