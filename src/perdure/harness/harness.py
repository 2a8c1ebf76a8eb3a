"""The harness: one session, its conversations, and everything that runs in it."""

import asyncio
from collections.abc import Callable, Generator
from os import PathLike
from typing import Any, Self

from perdure.agent.advance import advance_generations
from perdure.agent.agent import Agent
from perdure.agent.configure import configure
from perdure.agent.documents import AgentDoc, LiveDoc, UsageDoc
from perdure.agent.generation import Generation
from perdure.agent.rules import close_ended
from perdure.agent.runs import arrive, withdraw_queued
from perdure.agent.settings import Settings
from perdure.agent.submissions import Draft, Settled, admit, dequeue, settle, settled_of
from perdure.agent.tool_task import ToolTask
from perdure.agent.usage import total
from perdure.base.clock import Clock, SystemClock
from perdure.base.errors import NotFound
from perdure.base.ids import ROOT, ConversationId, EntryId, SubmissionId, TaskId
from perdure.env.protocol import ExecutionEnv
from perdure.extensions.registry import Registry
from perdure.harness.conversation import Conversation
from perdure.harness.inspection import inspection
from perdure.harness.keys import KeysDoc
from perdure.harness.reports import Reports
from perdure.models.protocol import Models
from perdure.models.provider import ProviderModels
from perdure.session.publication import Publication
from perdure.session.session import Session
from perdure.storage.open import open_storage
from perdure.storage.protocol import Storage
from perdure.tasks.definition import task_definition
from perdure.tasks.tasks import Tasks, Wake
from perdure.tasks.transaction import TaskTransaction

BUILTIN_TASKS = {definition.kind: definition for definition in map(task_definition, (Generation, ToolTask))}


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


class Harness:
    """Storage plus everything that runs on it. Opening starts nothing: submitting, waiting and `resume` do."""

    def __init__(self, session: Session[TaskTransaction], agent: Agent, tasks: Tasks, reports: Reports) -> None:
        self.session = session
        self.agent = agent
        self.tasks = tasks
        self.reports = reports
        self._waiting: dict[SubmissionId, list[asyncio.Future[Settled]]] = {}
        self._wake_listeners: list[Callable[[Wake], None]] = []
        self._idle: list[asyncio.Event] = []
        self._owned: list[Any] = []
        agent.handle = lambda id: Conversation(self, id)
        session.listeners.append(self._published)
        self._stop_watching = agent.registry.on_change(tasks.code_changed)

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

        async def open_it() -> Harness:
            return await _open(
                open_storage(storage), registry or Registry(), models, env, settings or Settings(), clock, recover
            )

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
        try:
            return await self.tasks.close(self.agent.settings.close_timeout)
        finally:
            await self.session.close()
            for owned in self._owned:
                await owned.close()
            for waiting in self._waiting.values():
                for future in waiting:
                    future.cancel()

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
            keys = await self.session.value_of(KeysDoc)
            id = None if keys is None else keys["conversations"].get(key)
            if id is None:
                raise NotFound(f"no conversation under the key {key!r}")
        if id is None or await self.session.conversation(ConversationId(id)) is None:
            raise NotFound(f"no conversation {id}")
        return Conversation(self, ConversationId(id))

    async def fork(
        self, parent: ConversationId, entry: EntryId, *, owner: TaskId | None, key: str | None
    ) -> ConversationId:
        """Fork a conversation (see `Conversation.fork`)."""
        async with self.session.transaction() as tx:
            if key is not None:
                keys = await tx.doc(KeysDoc)
                if key in keys["conversations"]:
                    return ConversationId(keys["conversations"][key])
            child = await tx.fork(parent, entry, owner=owner)
            if key is not None:
                keys["conversations"][key] = child
            return child

    # work

    async def resume(self) -> None:
        """Start scheduling: interrupted work goes on."""
        await self.tasks.resume()

    def wake(self) -> Wake:
        """Whether anything could run now, else when something will. For hosts that exit while nothing runs."""
        return self.tasks.wake()

    def on_wake(self, listener: Callable[[Wake], None]) -> Callable[[], None]:
        """Call back with `wake()` after each stored commit that may change it; nobody waits for it."""
        self._wake_listeners.append(listener)
        return lambda: self._wake_listeners.remove(listener) if listener in self._wake_listeners else None

    async def admit(self, conversation: ConversationId, draft: Draft) -> SubmissionId:
        """Admit a submission (see `Conversation.submit`)."""
        async with self.session.transaction() as tx:
            submission, new = await admit(tx, conversation, draft)
            if new:
                await arrive(tx, conversation, submission, self.agent.settings, Generation)
        await self.tasks.resume()
        return submission.id

    async def wait_settled(self, id: SubmissionId) -> Settled:
        """Wait until a submission is settled. Starts scheduling."""
        await self.tasks.resume()
        record = await self.session.store.submission(id)
        if record is None:
            raise NotFound(f"no submission {id}")
        settled = settled_of(record)
        if settled is not None and id not in self.session.store.working.submissions:
            await self.session.store.settled()
            return settled
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(id, []).append(future)
        self.session.check_usable()
        return await future

    async def abort(self, conversation: ConversationId, *, background: bool, keep_queued: bool) -> None:
        """Mark a conversation's work for abort and withdraw its queue, in one commit."""
        async with self.session.transaction() as tx:
            await tx.conversation(conversation)
            await self.tasks.mark_conversation(tx, conversation, background=background)
            if not keep_queued:
                await withdraw_queued(tx, conversation)

    async def abort_submission(self, conversation: ConversationId, id: SubmissionId) -> bool:
        """Withdraw a queued submission, or abort the run of a placed one."""
        async with self.session.transaction() as tx:
            submission = await tx.submission(id)
            if submission is None:
                raise NotFound(f"no submission {id}")
            if submission.status == "queued":
                settle(tx, submission, Settled("unanswered", reason="withdrawn"))
                await dequeue(tx, conversation, {id})
                return True
            live: Any = await tx.value_of(LiveDoc, conversation)
            if submission.status != "placed" or live is None or live["run"] is None:
                return False
            return await tx.abort_task(TaskId(live["run"]["generation"]))

    async def wait_idle(self, conversation: ConversationId) -> None:
        """Wait until a conversation has no open run and no live foreground task."""
        await self.tasks.resume()
        changed = asyncio.Event()
        self._idle.append(changed)
        try:
            while not await self._is_idle(conversation):
                self.session.check_usable()
                changed.clear()
                await changed.wait()
        finally:
            self._idle.remove(changed)

    async def _is_idle(self, conversation: ConversationId) -> bool:
        if self.tasks.index.in_foreground(conversation):
            return False
        live: Any = await self.session.value_of(LiveDoc, conversation)
        return live is None or live["run"] is None

    # seeing

    def watch_document(self, kind: Any, scope_id: int | None = None, *, key: str | None = None) -> Any:
        """Watch a document: `async with harness.watch_document(Doc, id) as watch` (see `DocumentWatch`)."""
        return self.session.watch_document(kind, scope_id, key=key)

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
        for submission in publication.submissions:
            settled = settled_of(submission)
            if settled is not None:
                for future in self._waiting.pop(submission.id, ()):
                    if not future.done():
                        future.set_result(settled)
        for changed in self._idle:
            changed.set()
        if self._wake_listeners and publication.tasks:
            wake = self.tasks.wake()
            for listener in tuple(self._wake_listeners):
                listener(wake)


async def _open(
    storage: Storage,
    registry: Registry,
    models: Models | None,
    env: Any,
    settings: Settings,
    clock: Clock | None,
    recover: bool,
) -> Harness:
    session = await Session(storage, transaction_type=TaskTransaction, clock=clock or SystemClock()).open()
    try:
        reports = Reports(session.clock)
        own_models = None if models is not None else ProviderModels()
        agent = Agent(session, registry, models or own_models, env_function(env), settings, BUILTIN_TASKS, reports.add)  # type: ignore[arg-type]
        tasks = Tasks(session, agent, host=agent, restart_limit=settings.restart_limit, report=reports.add)
        session.rules.append(close_ended)
        session.rules.append(lambda tx: advance_generations(agent, tx))
        await tasks.open(recover=recover)
        harness = Harness(session, agent, tasks, reports)
        if own_models is not None:
            harness._owned.append(own_models)
        return harness
    except BaseException:
        await session.close()
        raise


def env_function(env: Any) -> Any:
    """The `env=` argument as a function of conversation and cwd."""
    if env is None:
        from perdure.env.local import LocalEnv

        return lambda conversation, cwd: LocalEnv(cwd)
    if callable(env):
        return env
    return lambda conversation, cwd: _Shared(env)


class _Shared:
    """One environment for all calls: closing it after a call does nothing."""

    def __init__(self, env: ExecutionEnv) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    async def close(self) -> None:
        """The environment belongs to the host program."""
