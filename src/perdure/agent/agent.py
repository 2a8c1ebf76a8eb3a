"""What the built-in tasks reach as `run.host`: models, registry, environments, settings, transcripts."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from perdure.agent.attachments import Attachments
from perdure.agent.documents import AgentDoc
from perdure.agent.settings import Budget, Settings
from perdure.agent.transcripts import Transcripts
from perdure.base.digest import sha256
from perdure.base.ids import ConversationId, TaskId
from perdure.base.lazy import load
from perdure.env.protocol import ExecutionEnv
from perdure.extensions.registry import Registry
from perdure.extensions.resolve import Resolved, resolve
from perdure.models.messages import AssistantMessage
from perdure.models.protocol import Models
from perdure.session.session import Session
from perdure.tasks.definition import TaskDefinition, task_definition
from perdure.tasks.scheduler import Reporter
from perdure.tasks.transaction import TaskTransaction

RESOLVED_KEPT: Final = 1024
"""Conversations whose resolved agent is kept; resolving again costs microseconds."""

EnvFunction = Callable[[ConversationId, str | None], Any]


class AgentNames(msgspec.Struct, frozen=True):
    """A conversation's agent as it is now: names, with the host's defaults filled in, and the code behind them."""

    model: str | None
    thinking: str | None
    instructions: str | None
    cwd: str | None
    resolved: Resolved
    budget: Budget | None = None
    """The conversation's own; None: the host's."""

    @property
    def extensions(self) -> tuple[str, ...]:
        """Installed extensions that are selected, in order."""
        return self.resolved.extensions

    @property
    def tools(self) -> tuple[str, ...]:
        """Tools on offer, in order."""
        return tuple(self.resolved.tools)


class Agent:
    """The host of a session's agents. One for all its conversations."""

    def __init__(
        self,
        session: Session[TaskTransaction],
        registry: Registry,
        models: Models,
        env: EnvFunction,
        settings: Settings,
        builtin_tasks: Mapping[str, TaskDefinition | str],
        report: Reporter,
    ) -> None:
        self.session = session
        self.registry = registry
        self.models = models
        self.settings = settings
        self.transcripts = Transcripts(session)
        self.attachments = Attachments(session)
        self.report = report
        self.left_parks: dict[TaskId, Any] = {}
        """Parks that calls returned and that are not stored yet: arguments and what was to be kept."""
        self.asking: dict[TaskId, tuple[str, float]] = {}
        """Gates that have not answered yet, by the call that they hold back: their names, and since when they think."""
        self.session_tag = sha256(session.storage.location.encode()).hex()[:12]
        """Names this session in the marks of processes that its calls start."""
        self.handle: Callable[[ConversationId], Any] | None = None
        """Makes conversation handles for tools; the harness sets it."""
        self._env = env
        self._builtin = dict(builtin_tasks)
        self._resolved: dict[ConversationId, tuple[Any, int, Any, AgentNames]] = {}

    def task(self, kind: str) -> TaskDefinition | None:
        """The task catalog: built-in kinds, then what extensions bring."""
        found = self._builtin.get(kind)
        if isinstance(found, str):  # where it is loaded from when it is first needed
            found = self._builtin[kind] = task_definition(load(found))
        return found or self.registry.snapshot().task(kind)

    async def names(self, conversation: ConversationId) -> AgentNames:
        """The conversation's agent, resolved now. Costs nothing while neither names nor registry change."""
        state = self.session.at_hand((AgentDoc.kind, "conversation", conversation, None))
        if state is not None and state.version == AgentDoc.version:
            return self.names_of(conversation, state.value)
        return self.names_of(conversation, await self.session.value_of(AgentDoc, conversation))

    def names_of(self, conversation: ConversationId, value: Any) -> AgentNames:
        """The agent that a value of the agent document means now."""
        snapshot = self.registry.snapshot()
        settings = self.settings
        default = None if settings.extensions is None else list(settings.extensions)
        defaults = (default, settings.default_model, settings.instructions)
        known = self._resolved.get(conversation)
        if known is not None and known[0] is value and known[1] == snapshot.version and known[2] == defaults:
            return known[3]
        stored = value or {}
        names = AgentNames(
            stored.get("model") or settings.default_model,
            stored.get("thinking"),
            stored.get("instructions") or settings.instructions,
            stored.get("cwd"),
            resolve(snapshot, stored.get("extensions"), stored.get("tools"), default),
            None if stored.get("budget") is None else Budget(**stored["budget"]),
        )
        if len(self._resolved) >= RESOLVED_KEPT:
            self._resolved.clear()
        self._resolved[conversation] = (value, snapshot.version, defaults, names)
        return names

    def budget(self, names: AgentNames) -> Budget:
        """What bounds a conversation now."""
        return names.budget or self.settings.budget

    async def env(self, conversation: ConversationId) -> ExecutionEnv:
        """The conversation's execution environment, made for one use; the caller closes it."""
        names = await self.names(conversation)
        made = self._env(conversation, names.cwd)
        env: ExecutionEnv = await made if inspect.isawaitable(made) else made
        return env

    def priced(self, model: str, message: AssistantMessage) -> AssistantMessage:
        """The message with the cost of its tokens; unknown stays unknown."""
        if message.usage is None:
            return message
        cost = self.models.cost(model, message)
        return msgspec.structs.replace(message, usage=msgspec.structs.replace(message.usage, cost=cost))

    def forget(self, conversation: ConversationId) -> None:
        """Let go of what is kept for an idle conversation."""
        self._resolved.pop(conversation, None)
        self.session.store.working.forget_conversation(conversation, self.session.flushed)
