"""What sections and hooks are handed: to read, not to write."""

from typing import Any, TypeVar

from perdure.agent.agent import Agent, AgentNames
from perdure.base.ids import ConversationId, TaskId
from perdure.env.protocol import ExecutionEnv
from perdure.session.documents import Document
from perdure.tasks.runtime import TaskRun
from perdure.tasks.signals import Signal, SignalState

T = TypeVar("T")


class SectionContext:
    """What a section renders from. `agent` holds the names; documents are read as committed."""

    def __init__(self, agent: Agent, conversation: ConversationId, names: AgentNames) -> None:
        self.conversation_id = conversation
        self.agent = names
        self._agent = agent
        self._env: ExecutionEnv | None = None

    async def env(self) -> ExecutionEnv:
        """The conversation's execution environment."""
        if self._env is None:
            self._env = await self._agent.env(self.conversation_id)
        return self._env

    async def read(self, document: Document[T], scope_id: int | None = None, *, key: str | None = None) -> T | None:
        """A document's committed value, or None. Conversation documents default to this conversation's."""
        if scope_id is None and document.scope == "conversation":
            scope_id = self.conversation_id
        return await self._agent.session.snapshot(document, scope_id, key=key)

    def now(self) -> float:
        """Seconds since the epoch, by the injected clock."""
        return self._agent.session.clock.now()

    async def close(self) -> None:
        """Give the environment back, if one was made (called by the agent)."""
        if self._env is not None:
            await self._env.close()


class HookContext(SectionContext):
    """What a hook is handed. It may run again after a crash: what it decides, it keeps in a memo."""

    def __init__(self, agent: Agent, run: TaskRun, names: AgentNames) -> None:
        super().__init__(agent, run.conversation_id, names)
        self.task_id: TaskId = run.task_id
        self._run = run

    async def memo(self, name: str, value: Any = None, *, type: Any = None) -> Any:
        """A small value stored with the task; the first writer wins. Without a value: the stored one, or None."""
        return await self._run.memo(name, value, type=type)

    async def read_signal(self, signal: Signal[T], key: str) -> SignalState[T] | None:
        """What a key of the asking task holds: its value, `expired`, or None while nothing came."""
        return await self._run.read_signal(signal, key)
