"""The harness: one session, its conversations, and everything that runs in it."""

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import Any, Self

from perdure.agent.agent import Agent
from perdure.agent.configure import configure
from perdure.agent.documents import AgentDoc, UsageDoc
from perdure.agent.settings import Settings
from perdure.agent.usage import total
from perdure.base.clock import Clock
from perdure.base.errors import InvalidValue, NotFound
from perdure.base.ids import ROOT, ConversationId, TaskId
from perdure.base.lazy import load
from perdure.extensions.registry import Registry
from perdure.harness.actions import Actions
from perdure.harness.conversation import Conversation
from perdure.harness.inspection import inspection
from perdure.harness.keys import check_key, under_key
from perdure.harness.reports import Reports
from perdure.harness.retention import Retention
from perdure.harness.signalling import Signalling
from perdure.models.messages import Attachment
from perdure.models.protocol import Models
from perdure.session.publication import Publication
from perdure.session.session import Session
from perdure.session.watch import Watch
from perdure.storage.open import open_storage
from perdure.storage.protocol import Storage
from perdure.tasks.tasks import Tasks, Wake
from perdure.tasks.transaction import TaskTransaction

_NAME_A_MODEL = 'name it where the agent is: harness.root(model="provider:model")'
_OPEN_IT = "async with Harness.open(…) as harness, or harness = await Harness.open(…)"


class Opening:
    """What `Harness.open` returns: await it, or use it with `async with`."""

    def __init__(self, open_it: Callable[[], Any]) -> None:
        self._open = open_it
        self._harness: Harness | None = None

    def __await__(self) -> Generator[Any, Any, "Harness"]:
        harness: Harness = yield from self._open().__await__()
        return harness

    async def __aenter__(self) -> "Harness":
        self._harness = await self._open()
        return self._harness

    async def __aexit__(self, *exc: object) -> None:
        assert self._harness is not None
        await self._harness.close()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the session is not open yet, so there is no {name!r}: {_OPEN_IT}")


class Harness(Signalling):
    """Storage plus everything that runs on it. Opening starts nothing: submitting, waiting and `resume` do."""

    def __init__(
        self,
        session: Session[TaskTransaction],
        agent: Agent,
        tasks: Tasks,
        reports: Reports,
        actions: Actions,
        *owned: Any,
    ) -> None:
        self.session = session
        self.agent = agent
        self.tasks = tasks
        self.reports = reports
        self.actions = actions
        self._retention = Retention(agent, tasks)
        self._wake_listeners: list[Callable[[Wake], None]] = []
        self._owned = owned
        self._views: Any = None
        agent.handle = lambda id: Conversation(self, id)
        session.listeners.append(self._published)
        self._stop_watching = agent.registry.on_change(tasks.code_changed)

    def __repr__(self) -> str:
        return f"Harness({self.session.storage.location!r})"

    @classmethod
    def open(
        cls,
        storage: str | PathLike[str] | Storage,
        *,
        registry: Registry | None = None,
        models: Models | None = None,
        env: Any = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        recover: bool = True,
    ) -> Opening:
        """Open a session: a path, a URL, or a Storage. `async with Harness.open(…)`, or await it and `close()` later.

        `env` is a function of (conversation id, cwd) that gives an execution environment for one use, or an
        environment; by default this machine. `recover=False` is for programs that open, commit a mark and close.
        Raises `StorageInUse` if another process has it open, `TooNew` if newer code wrote it.
        """

        _check(registry, models, settings)

        async def open_it() -> Harness:
            made: Harness = await load("perdure.harness.opening:open_harness")(
                open_storage(storage), registry or Registry(), models, env, settings or Settings(), clock, recover
            )
            return made

        return Opening(open_it)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> list[str]:
        """Stop in good order: running code is cancelled, its tasks go back to their checkpoints, nothing is aborted.

        Returns the names of code that would not stop within `settings.close_timeout`; it is cut off from the session.
        """
        self._stop_watching()
        self._retention.stop()
        try:
            return await self.tasks.close(self.agent.settings.close_timeout)
        finally:
            await self.session.close()
            for owned in self._owned:
                await owned.close()

    @property
    def settings(self) -> Settings:
        """The settings, read live: change them while everything runs."""
        return self.agent.settings

    # conversations

    async def root(self, **agent: Any) -> Conversation:
        """The root conversation. Agent arguments apply only when it has no agent yet; later use `configure`."""
        if agent:
            async with self.session.transaction() as tx:
                if await tx.value_of(AgentDoc, ROOT) is None:
                    await configure(tx, ROOT, **agent)
        return Conversation(self, ROOT)

    async def conversation(self, id: ConversationId | int | None = None, *, key: str | None = None) -> Conversation:
        """A conversation by id, or by the key it was created under. Raises `NotFound`."""
        if key is not None:
            check_key(key)
            id = await under_key(self.session, key)
            if id is None:
                raise NotFound(f"no conversation under the key {key!r}")
        if id is None or await self.session.conversation(ConversationId(id)) is None:
            raise NotFound(f"no conversation {id}")
        return Conversation(self, ConversationId(id))

    async def attach(self, content: bytes, media_type: str | None = None, *, name: str | None = None) -> Attachment:
        """Store a file and get the block that refers to it, for `submit([Text(…), attachment])`.

        The same bytes are stored once, however often they come and in however many conversations they are shown.
        Without `media_type` it is told from the bytes: common images, PDF, text. Returns once it is stored. Raises
        `InvalidValue` for what is empty, larger than 32 MiB, or cannot be told.
        """
        return await self.agent.attachments.keep(content, media_type, name)

    async def file(self, attachment: Attachment | str) -> bytes:
        """The bytes of an attachment, or of its digest. Raises `NotFound`."""
        digest = attachment if isinstance(attachment, str) else attachment.digest
        found = await self.agent.attachments.read(digest)
        if found is None:
            raise NotFound(f"no stored attachment {digest}")
        return found

    # work

    async def resume(self) -> None:
        """Start scheduling: interrupted work goes on."""
        await self.tasks.resume()

    async def orphan_missing(self) -> list[TaskId]:
        """End the abort-marked tasks whose code is not installed, without cleanup; returns them."""
        return await self.tasks.orphan_missing()

    def wake(self) -> Wake:
        """Whether anything could run now, else when something will. For hosts that exit while nothing runs."""
        return self.tasks.wake()

    def on_wake(self, listener: Callable[[Wake], None]) -> Callable[[], None]:
        """Call back with `wake()` after each stored commit that may change it; nobody waits for it."""
        self._wake_listeners.append(listener)
        return lambda: self._wake_listeners.remove(listener) if listener in self._wake_listeners else None

    # seeing

    def watch_document(self, kind: Any, scope_id: int | None = None, *, key: str | None = None) -> Any:
        """Watch a document: `async with harness.watch_document(Doc, id) as watch` (see `Watch`)."""
        return self.session.watch_document(kind, scope_id, key=key)

    def watch_tasks(self, *, after: str | None = None) -> AbstractAsyncContextManager[Watch]:
        """Watch the live task graph, `{"tasks": {id: …}}`: what runs, waits, sleeps, on what, and who owns whom.

        As with `Conversation.watch`: the value now, then the operations of every commit that changes it.
        """
        found: AbstractAsyncContextManager[Watch] = self.views.tasks(after)
        return found

    @property
    def _registry(self) -> Registry:
        return self.agent.registry

    @property
    def views(self) -> Any:
        """What can be watched of the session (see `perdure.harness.views`); loaded when somebody first watches."""
        if self._views is None:
            self._views = load("perdure.harness.views:Views")(self.session)
        return self._views

    async def usage(self) -> dict[str, Any]:
        """The sum of what all conversations used; each attempt counted once, where it was made."""
        values = []
        cursor = 0
        storage = await self.session.store.settled()
        while page := await storage.scan_conversations(cursor=cursor, limit=500):
            for conversation in page:
                value = await self.session.value_of(UsageDoc, conversation.id)
                if value is not None:
                    values.append(value)
            cursor = page[-1].id
        return total(values)

    def inspect(self) -> dict[str, Any]:
        """What runs, what is parked or blocked and why, what holds the line, what was reported."""
        return inspection(self.session, self.tasks, self.reports)

    def _published(self, publication: Publication) -> None:
        if self._wake_listeners and publication.tasks:
            wake = self.tasks.wake()
            for listener in tuple(self._wake_listeners):
                try:
                    listener(wake)
                except Exception as error:  # whoever listens must not stop what is being stored
                    self.reports.add("wake listener", error)


def _check(registry: Any, models: Any, settings: Any) -> None:
    """Refuse what could only fail later, with words that do not say why."""
    if registry is not None and not isinstance(registry, Registry):
        raise InvalidValue(f"not a registry: {registry!r:.100}", hint="registry=Registry([extension, …])")
    if isinstance(models, str):
        raise InvalidValue(f"models= gives access to models, {models[:100]!r} is the name of one", hint=_NAME_A_MODEL)
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidValue(f"not settings: {settings!r:.100}", hint="settings=Settings(…)")
