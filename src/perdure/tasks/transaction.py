"""A transaction that knows tasks and who owns them."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from perdure.base import jsonvalue
from perdure.base.clock import passed_millis
from perdure.base.errors import (
    InvalidDecision,
    InvalidDefinition,
    InvalidValue,
    InvocationEnded,
    NotFound,
    OwnershipRefused,
    Refused,
)
from perdure.base.ids import ConversationId, EntryId, TaskId
from perdure.base.jsonvalue import Json
from perdure.session import forks
from perdure.session.transaction import Transaction
from perdure.tasks.decisions import Decisions, Next, decide_checkpoint
from perdure.tasks.definition import task_definition
from perdure.tasks.phases import BoundPhase
from perdure.tasks.signals import LARGE_BYTES, LargeSignal, Signal, SignalResult, deliver, is_closed
from perdure.tasks.states import Checkpoint, Pending, new_task

T = TypeVar("T")


class TaskTransaction(Transaction, Decisions):
    """A transaction that can create tasks and conversations and, inside a running task, decide its next step."""

    run: Any = None
    """The task run that opened the block; None outside tasks."""
    may_decide = True
    """False for blocks that a tool opens: it returns a result instead."""
    decision: Next[Any] | None = None
    checkpoint_to: Checkpoint | None = None
    consequences: Any = None
    """What follows from this transaction, once its block has ended."""

    def create_task(
        self,
        task: Any,
        *,
        owner: TaskId | None = None,
        conversation: ConversationId | None = None,
        background: bool = False,
    ) -> TaskId:
        """Create a task from its input. It is owned by a task (and lives in that task's conversation), or by a
        conversation; inside a task the running task is the default owner. `background` needs a conversation.

        Refused if the owner has ended, is ending, or is being aborted when the block ends.
        """
        definition = task_definition(task)
        self._session.tasks.check_installed(definition)
        if owner is None and conversation is None:
            if self.run is None:
                raise Refused("a task needs an owner", hint="pass owner=<task id> or conversation=<conversation id>")
            owner = self.run.task_id
        if owner is not None and conversation is not None:
            raise Refused("a task is owned by a task or by a conversation, not by both")
        if background and conversation is None:
            raise Refused("background work belongs to a conversation", hint="pass conversation=, without owner=")
        if owner is not None:
            parent = self.live_task(owner)
            if parent is None:
                raise OwnershipRefused(f"task {owner} has ended or never was; it can own no new work")
            conversation = parent.conversation
        assert conversation is not None
        id = TaskId(self.mint())
        record = new_task(
            id,
            conversation,
            definition.kind,
            definition.version,
            jsonvalue.encode(definition.encode_input(task)),
            Pending(Checkpoint(definition.first_phase, {})),
            owner=owner,
            background=background,
            started_at=self.now_millis,
        )
        self.put_task(record, created=True)
        return id

    def create_conversation(self, *, owner: TaskId | None) -> ConversationId:
        """Create an empty conversation. `owner` is the task whose abort reaches it, or None, written out."""
        self._check_conversation_owner(owner)
        return self.put_conversation(owner=owner)

    async def fork(self, conversation: ConversationId, entry: EntryId, *, owner: TaskId | None) -> ConversationId:
        """Create a conversation that sees the other one up to the entry, without copying it."""
        self._check_conversation_owner(owner)
        return await forks.fork(self, conversation, entry, owner=owner)

    async def abort_task(self, id: TaskId, *, background: bool = False) -> bool:
        """Mark a task and the foreground work below it for abort; with `background` also what lies behind the
        boundary below it. False if it has ended already. Cleanup runs deepest first, once the mark is stored."""
        self.check_open()
        if await self.task(id) is None:
            raise NotFound(f"no task {id}")
        marked: bool = await self._session.tasks.mark(self, id, background=background)
        return marked

    async def signal(self, id: TaskId, signal: Signal[T], key: str, value: T) -> SignalResult:
        """Deliver a value to a task in this commit: `delivered`, `duplicate` (the first value for a key is kept),
        `invalid`, `closed` or `not_found`. It is kept if it comes before the task sleeps on the key."""
        return await self._signal(id, signal, key, lambda: signal.to_json(value))

    async def signal_json(self, id: TaskId, signal: Signal[Any], key: str, data: Json) -> SignalResult:
        """Deliver JSON from outside, in the same way; what does not fit the signal's type is `invalid`."""
        return await self._signal(id, signal, key, lambda: signal.from_raw(data))

    async def _signal(self, id: TaskId, signal: Signal[Any], key: str, value: Callable[[], Json]) -> SignalResult:
        self.check_open()
        if not isinstance(signal, Signal):
            raise InvalidDefinition(f"not a signal: {signal!r}", hint="pass the Signal itself, not its name")
        if type(id) is not int:
            raise InvalidValue(f"a task's id is a whole number, not {id!r}", hint="int(…) of what came as text")
        signal.key(key)
        record = await self.task(id) if 0 < id <= jsonvalue.LARGEST_INTEGER else None
        if record is None:
            return "not_found"
        if is_closed(record):
            return "closed"
        try:
            checked = value()
        except InvalidValue:
            return "invalid"
        result, after = deliver(record, signal, key, checked, self.now_millis)
        if after is not record:
            self.put_task(after)
        if result == "delivered" and (size := len(jsonvalue.encode(checked))) > LARGE_BYTES:
            self._session.tasks.report(f"signal {signal.name} to task {id}", LargeSignal(size))
        return result

    @property
    def now_millis(self) -> int:
        """The time of this commit in milliseconds, read once."""
        if self._now is None:
            self._now = passed_millis(self._session.clock.now())
        return self._now

    _now: int | None = None

    # decisions: kept here, stored with the commit

    def checkpoint(self, phase: BoundPhase[Any], /, *args: Any, **kwargs: Any) -> None:
        """Store a new checkpoint and stay in this invocation: the intent of what the code does next.

        The named phase's own method runs only if a later open, close or hand-over finds the task there.
        """
        self._check_running()
        self.checkpoint_to = decide_checkpoint(self.run.definition, phase, args, kwargs)

    def _decide(self, decision: Next[Any]) -> None:
        self._check_running()
        if self.decision is not None:
            raise InvalidDecision("this transaction has decided already", hint="a task decides once an invocation")
        self.decision = decision
        self.run.issued(decision, self)

    @property
    def _definition(self) -> Any:
        self._check_running()
        return self.run.definition

    def _check_running(self) -> None:
        self.check_open()
        if self.run is None or not self.may_decide:
            raise InvalidDecision("only a task decides", hint="open the block with run.transaction()")
        if self.run.decided:
            raise self.run.break_rules("the task has decided; nothing follows a decision")

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self.run is not None and self.run.ended:
            self._session.cut_off(self)
            raise InvocationEnded("the task's invocation has ended", hint="code that outlives its task can do nothing")
        if self.run is not None:
            self.run.block = self
        return self

    def end(self) -> None:
        """Refuse every later use. What refers back to the block is let go, so that nobody has to search for it."""
        super().end()
        self.consequences = None
        if self.run is not None and self.run.block is self:
            self.run.block = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        if error is None and self.run is not None and self.decision is not None:
            record = self.changes.task(self.run.task_id)
            self.run.decision_stored(self.decision, runs_on=record is not None and record.status == "running")

    def _check_conversation_owner(self, owner: TaskId | None) -> None:
        self.check_open()
        if owner is not None and self.live_task(owner) is None:
            raise OwnershipRefused(f"task {owner} has ended or never was; it can own no conversation")
