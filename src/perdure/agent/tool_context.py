"""What a tool is handed while it runs."""

from typing import Any, TypeVar

from perdure.agent.agent import AgentNames
from perdure.agent.call_work import CallWork
from perdure.agent.calls import CallSite
from perdure.agent.documents import LiveDoc
from perdure.agent.output import OutputBuffer, Throttle
from perdure.agent.parking import Resumed
from perdure.base import jsonvalue
from perdure.base.delta import Operation
from perdure.base.ids import ConversationId, TaskId
from perdure.base.text import well_formed
from perdure.env.protocol import ExecutionEnv
from perdure.models.messages import Attachment
from perdure.models.protocol import Models
from perdure.session.documents import Document
from perdure.tasks.signals import Signal, SignalState
from perdure.tasks.transaction import TaskTransaction
from perdure.tasks.wakes import WakeReason

T = TypeVar("T")


class ToolContext(CallWork):
    """One run of one call. Once the call has ended, every use raises `InvocationEnded`."""

    def __init__(self, site: CallSite, env: ExecutionEnv, resumed: Resumed | None = None) -> None:
        super().__init__(site, woken=resumed is not None)
        self.task_id: TaskId = site.run.task_id
        self.conversation_id: ConversationId = site.run.conversation_id
        self.call_id = site.call.id
        self.call_tag = site.tag
        self.env = env
        self.models: Models = site.agent.models
        self.wake: WakeReason | None = None if resumed is None else resumed.wake
        """Why the call runs again after it parked; None in its first run."""
        self.checkpoint: Any = None if resumed is None else resumed.checkpoint
        """What it parked with last."""
        self.diagnostics: list[str] = [] if resumed is None else list(resumed.diagnostics)
        self._buffer: OutputBuffer | None = None
        self._throttle: Throttle | None = None

    def output(self, chunk: str | bytes) -> None:
        """Stream output to everyone who watches. Bounded: the newest 50 KiB or 2,000 lines are kept."""
        self._check()
        if self._buffer is None or self._throttle is None:
            self._buffer = OutputBuffer()
            self._throttle = Throttle(self._site.agent.session.clock, self._commit_output)
        self._buffer.append(chunk)
        self._throttle.touch()

    async def details(self, value: Any) -> None:
        """Structured details for UIs, shown under the call now; the result's own details replace them at the end."""
        self._check()
        jsonvalue.check(value)
        async with self._site.run.transaction() as tx:
            ops = [{"op": "add", "path": f"/tools/{self.task_id}/details", "value": value}]
            await self._patch(tx, ops)

    def diagnostic(self, text: str) -> None:
        """A line for the model, appended to the result as one marked block."""
        self._check()
        self.diagnostics.append(well_formed(text))

    async def memo(self, name: str, value: Any = None, *, type: Any = None) -> Any:
        """A small value stored with the call; the first writer wins, also across a crash."""
        self._check()
        return await self._site.run.memo(name, value, type=type)

    async def attach(self, content: bytes, media_type: str | None = None, *, name: str | None = None) -> Attachment:
        """Store a file and get the block that refers to it, for `ToolResult(content=[…])` or an input."""
        self._check()
        return await self._site.agent.attachments.keep(content, media_type, name)

    async def read_signal(self, signal: Signal[T], key: str) -> SignalState[T] | None:
        """What a key of this call holds: its value, `expired`, or None while nothing came. Costs no storage access."""
        self._check()
        return await self._site.run.read_signal(signal, key)

    async def read(self, document: Document[T], scope_id: int | None = None, *, key: str | None = None) -> T | None:
        """A document's committed value, or None. Conversation documents default to this conversation's."""
        self._check()
        if scope_id is None and document.scope == "conversation":
            scope_id = self.conversation_id
        return await self._site.agent.session.snapshot(document, scope_id, key=key)

    def conversation(self, id: ConversationId | None = None) -> Any:
        """A handle on a conversation, by default this one."""
        self._check()
        assert self._site.agent.handle is not None
        return self._site.agent.handle(id or self.conversation_id)

    @property
    def agent(self) -> AgentNames:
        """This conversation's agent as it was when the call began."""
        return self._site.names

    @property
    def abort_requested(self) -> bool:
        """Whether the call is being stopped."""
        return self._site.run.abort_requested

    @property
    def cancelled(self) -> bool:
        """Whether the call has to come to its end: it is being stopped, or the session closes."""
        return self.abort_requested or self._site.run.ended or self._site.agent.session.tasks.scheduler.closing

    def now(self) -> float:
        """Seconds since the epoch, by the injected clock."""
        self._check()
        return self._site.agent.session.clock.now()

    async def end_output(self) -> None:
        """No more output (called by the tool task)."""
        if self._throttle is not None:
            await self._throttle.close()

    def unstored_output(self) -> list[Operation]:
        """What is left to store of the output, for the commit that parks the call."""
        return [] if self._buffer is None else self._buffer.take_operations(f"/tools/{self.task_id}/output")

    async def _commit_output(self) -> int:
        ops = self.unstored_output()
        if not ops or self._site.run.ended:
            return 0
        async with self._site.run.transaction(progress=True) as tx:
            await self._patch(tx, ops)
        return sum(len(op["value"]) for op in ops)

    async def _patch(self, tx: TaskTransaction, ops: list[Operation]) -> None:
        live: Any = await tx.value_of(LiveDoc, self.conversation_id)
        if live is not None and str(self.task_id) in live["tools"]:
            await tx.patch(LiveDoc, self.conversation_id, ops)
