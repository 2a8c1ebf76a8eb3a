"""What extension code is handed: to tools, hooks and sections, and the conversations that they reach.

The rooms above fill these protocols. Annotate with them where only `perdure.extensions` may be imported.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.env.protocol import ExecutionEnv
from perdure.extensions.kept import C_co
from perdure.extensions.results import ToolResult
from perdure.extensions.tool import Tool
from perdure.models.messages import Attachment, Message
from perdure.models.protocol import Models
from perdure.session.documents import Document
from perdure.storage.records import Entry, SubmissionStatus
from perdure.tasks.outcomes import Outcome
from perdure.tasks.signals import Signal, SignalState
from perdure.tasks.transaction import TaskTransaction
from perdure.tasks.wakes import WakeReason

T = TypeVar("T")


class AgentView(Protocol):
    """A conversation's agent, with the host's defaults filled in: names, in the order in which they count."""

    @property
    def model(self) -> str | None:
        """`provider:model`; None where nobody has chosen one."""
        ...

    @property
    def thinking(self) -> str | None:
        """The thinking level; None is the model's own."""
        ...

    @property
    def instructions(self) -> str | None: ...

    @property
    def cwd(self) -> str | None:
        """The working directory of its environment; None is the environment's own."""
        ...

    @property
    def extensions(self) -> tuple[str, ...]:
        """Selected extensions that are installed."""
        ...

    @property
    def tools(self) -> tuple[str, ...]:
        """Tools on offer."""
        ...


class SubmissionHandle(Protocol):
    """A submission that is stored. The handle itself holds nothing but its id."""

    @property
    def conversation_id(self) -> ConversationId: ...

    @property
    def id(self) -> SubmissionId: ...

    async def status(self) -> SubmissionStatus:
        """queued, placed, done or unanswered."""
        ...

    async def settled(self) -> Any:
        """Wait until it is settled: a `Settled` with `status`, `answer`, `reason`, `detail`. Never raises for an
        unanswered one; cancelling changes nothing."""
        ...

    async def wait(self) -> Any:
        """Wait for the `Answer`: `text`, `entry_id`, `usage`. Raises `Unanswered` if it ended without one; cancelling
        changes nothing."""
        ...

    async def abort(self) -> bool:
        """Withdraw it while it is queued; once it is placed, abort its run. False if it was settled already."""
        ...


class ConversationHandle(Protocol):
    """A conversation. The handle itself holds nothing but its id, so any number may exist."""

    @property
    def id(self) -> ConversationId: ...

    async def submit(
        self,
        content: str | list[Any],
        *,
        request_id: str | None = None,
        when_busy: Literal["follow_up", "steer", "reject"] = "follow_up",
        notify: tuple[TaskId, str] | None = None,
    ) -> SubmissionHandle:
        """Hand in an input; returns once it is stored.

        With a `request_id` this is exactly-once: a tool that runs again after a crash gets the first submission. The
        same id with other content raises `RequestConflict`; `when_busy="reject"` may raise `Busy`; both store nothing.
        """
        ...

    async def write(
        self, entry: Any, *, request_id: str | None = None, head: EntryId | Literal[True] | None = None
    ) -> SubmissionHandle:
        """Hand in a passive entry: placed at once when nothing is open or queued, else at the next boundary."""
        ...

    async def abort(self, *, background: bool = False, keep_queued: bool = False) -> None:
        """Stop the current work and withdraw queued inputs, in one commit; return when the conversation is idle."""
        ...

    async def wait_idle(self) -> None:
        """Wait in memory until no run is open and no foreground task is live."""
        ...

    async def agent(self) -> AgentView:
        """Its agent, resolved to what is installed now."""
        ...

    async def configure(
        self,
        *,
        model: Any = ...,
        thinking: Any = ...,
        extensions: Any = ...,
        tools: Any = ...,
        instructions: Any = ...,
        cwd: Any = ...,
        budget: Any = ...,
    ) -> None:
        """Change the given fields, from the next request on. None clears a field back to the host's default."""
        ...

    async def fork(
        self, entry_id: EntryId, *, owner: TaskId | None = None, key: str | None = None
    ) -> "ConversationHandle":
        """A conversation that sees this one up to the entry, without copying it. The same key gives the same fork."""
        ...

    async def messages(self) -> list[Message]:
        """What a model would read now: the active range, paired and in order."""
        ...

    async def entries(
        self,
        *,
        after: EntryId | None = None,
        before: EntryId | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Entry]:
        """A page of the stored transcript, ancestors included."""
        ...

    async def usage(self) -> dict[str, Any]:
        """What its own requests and tools used: tokens, and USD where the price is known."""
        ...


class _Reading(Protocol):
    """What every context can read."""

    @property
    def conversation_id(self) -> ConversationId: ...

    @property
    def agent(self) -> AgentView:
        """This conversation's agent, as it was when the code was called."""
        ...

    async def read(self, document: Document[T], scope_id: int | None = None, *, key: str | None = None) -> T | None:
        """A document's committed value, or None. Conversation documents default to this conversation's."""
        ...

    def now(self) -> float:
        """Seconds since the epoch, by the injected clock."""
        ...


class _Remembering(Protocol):
    """Small values that are stored with a live task and gone at its end."""

    @overload
    async def memo(self, name: str) -> Any: ...
    @overload
    async def memo(self, name: str, *, type: type[T]) -> T | None: ...
    @overload
    async def memo(self, name: str, value: T, *, type: Any = None) -> T:
        """The stored value. With a value: stored first if there is none yet, so that the first writer wins, also
        across a crash. Without: None if there is none. Values are JSON; others need their `type`.

        Hooks and the task that they look at share the names: prefix yours. None cannot be stored, names that begin
        with `perdure.` are refused.
        """
        ...


class _Signalled(Protocol):
    """What came from outside for a live task."""

    async def read_signal(self, signal: Signal[T], key: str) -> SignalState[T] | None:
        """What a key of the task holds: its value, `expired`, or None while nothing came. Costs no storage access."""
        ...


class SectionContext(_Reading, Protocol):
    """What a section renders from: to read, not to write. It is asked before each request, and again after a crash."""

    async def env(self) -> ExecutionEnv:
        """The conversation's execution environment, made when it is first asked for."""
        ...


class HookContext(SectionContext, _Remembering, _Signalled, Protocol):
    """What a hook is handed: to read, and to keep its decisions in memos. It writes nothing else, since it may run
    again after a crash, and a gate at every wake of its call."""

    @property
    def task_id(self) -> TaskId:
        """The task that asks: a generation, or a call."""
        ...


class NestedCall(Protocol):
    """A call that a tool has started of another."""

    @property
    def task_id(self) -> TaskId: ...

    async def result(self) -> ToolResult:
        """Wait in memory for its result; the stored one once it has ended."""
        ...


class ToolContext(_Reading, _Remembering, _Signalled, Protocol[C_co]):
    """One run of one call. Once the call has ended, whatever acts through it raises `InvocationEnded`.

    `ToolContext[C]` names the type of what the call keeps when it parks.
    """

    @property
    def task_id(self) -> TaskId:
        """The call's task. It stays the same when the call runs again, so keys of outside work are made from it."""
        ...

    @property
    def call_id(self) -> str:
        """The provider's id of the call; it may repeat over the turns of a conversation."""
        ...

    @property
    def call_tag(self) -> str:
        """Marks what the call starts outside, for `env.exec(tag=)`: what a crash left is found and ended by it."""
        ...

    @property
    def env(self) -> ExecutionEnv:
        """Files and processes of the conversation's place; closed when the call ends."""
        ...

    @property
    def models(self) -> Models:
        """Models for requests of the tool's own. What they use is reported by `ToolResult(usage=)`."""
        ...

    @property
    def wake(self) -> WakeReason | None:
        """Why the call runs again after it parked; None in its first run. A rerun after a crash sees the same one."""
        ...

    @property
    def checkpoint(self) -> C_co | None:
        """What the call parked with last; None before it ever parked."""
        ...

    @property
    def abort_requested(self) -> bool:
        """Whether the call is being stopped. An async tool is cancelled as well; a blocking one has to look."""
        ...

    def output(self, chunk: str | bytes) -> None:
        """Stream output to everyone who watches. Bounded: the newest 50 KiB or 2,000 lines are kept."""
        ...

    async def details(self, value: Any) -> None:
        """Show JSON under the call now, in a commit of its own; the result's details replace it at the end."""
        ...

    def diagnostic(self, text: str) -> None:
        """A line for the model, appended to the result as one marked block."""
        ...

    def transaction(self) -> TaskTransaction:
        """A block whose writes are stored together when it ends, or not at all. It cannot decide: a tool returns.

        Inside, await nothing of the outside world, and nothing else of this context that writes.
        """
        ...

    async def attach(self, content: bytes, media_type: str | None = None, *, name: str | None = None) -> Attachment:
        """Store a file, once however often it comes, and get the block that refers to it: for a result's content or an
        input. Without `media_type` it is told from the bytes. Raises `InvalidValue` for what is empty or too large."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the call has to come to its end: it is being stopped, or the session closes."""
        ...

    async def create_task(
        self,
        task: Any,
        *,
        key: str | None = None,
        conversation: ConversationId | None = None,
        background: bool = False,
    ) -> TaskId:
        """Create a task that the call owns, so that the call's end waits for it and its abort reaches it; or, with
        `conversation` (and `background`), one of a conversation. With a `key` a rerun of the call finds the task that
        the first run created. Raises `OwnershipRefused` if the owner is ending, `KeyConflict` for a key that stands
        for another kind of work."""
        ...

    async def start_tool(
        self, tool: str | Tool, arguments: dict[str, Any] | None = None, *, key: str | None = None
    ) -> NestedCall:
        """Start another tool of this conversation in a task of its own, with its gates, checks and intent.

        A rerun of the call finds it by its key; without one by its place among the calls without. The same key with
        another tool or other arguments raises `KeyConflict`. It ends with the call at the latest. After a crash it goes
        on if the call itself runs again, else it is left `interrupted`.
        """
        ...

    async def execute_tool(
        self, tool: str | Tool, arguments: dict[str, Any] | None = None, *, key: str | None = None
    ) -> ToolResult:
        """`start_tool`, and wait in memory for its result. An error is a result too: look at `is_error`. What it asks
        of the run by `control` counts only if the calling tool returns it."""
        ...

    async def wait_task(self, id: TaskId) -> Outcome:
        """Wait in memory for a task's end; cancelling changes nothing."""
        ...

    def conversation(self, id: ConversationId | None = None) -> ConversationHandle:
        """A handle on a conversation, by default the call's own."""
        ...
