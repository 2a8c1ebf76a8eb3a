"""What handles do to a session: admit, settle, fork, abort, wait. One commit each where they write."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.agent.agent import Agent
from perdure.agent.documents import LiveDoc
from perdure.agent.runs import Starter, arrive, withdraw_queued
from perdure.agent.submissions import Draft, admit, dequeue, settle, settled_of
from perdure.base.errors import Error, NotFound
from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.extensions.settled import Settled
from perdure.harness.keys import check_key, take_key, under_key
from perdure.session.publication import Publication
from perdure.session.session import Session
from perdure.tasks.tasks import Tasks, Wake
from perdure.tasks.transaction import TaskTransaction


class Actions:
    """The verbs behind `Conversation` and `Submission`."""

    def __init__(self, session: Session[TaskTransaction], agent: Agent, tasks: Tasks, start: Starter) -> None:
        self.session = session
        self._agent = agent
        self.tasks = tasks
        self._start = start
        self._waiting: dict[SubmissionId, list[asyncio.Future[Settled]]] = {}
        self._idle: list[asyncio.Event] = []
        session.listeners.append(self._published)
        session.on_end.append(self._ended)

    async def admit(self, conversation: ConversationId, draft: Draft) -> SubmissionId:
        """Admit a submission (see `Conversation.submit`)."""
        async with self.session.transaction() as tx:
            submission, new = await admit(tx, conversation, draft)
            if new:
                await arrive(tx, conversation, submission, self._agent.settings, self._start)
        await self.tasks.resume()
        return submission.id

    async def wait_settled(self, id: SubmissionId) -> Settled:
        """Wait until a submission is settled. Starts scheduling. Raises if the session ends before."""
        await self.tasks.resume()
        record = await self.session.store.submission(id)
        if record is None:
            raise NotFound(f"no submission {id}")
        settled = settled_of(record)
        if settled is not None and id not in self.session.store.working.submissions:
            await self.session.store.settled()
            return settled
        self.session.check_usable()
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(id, []).append(future)
        return await future

    async def fork(
        self, parent: ConversationId, entry: EntryId, *, owner: TaskId | None, key: str | None
    ) -> ConversationId:
        """Fork a conversation (see `Conversation.fork`)."""
        if key is not None:
            check_key(key)
        async with self.session.transaction() as tx:
            first = None if key is None else await under_key(tx, key)
            if first is not None:
                return first
            child = await tx.fork(parent, entry, owner=owner)
            if key is not None:
                await take_key(tx, key, child)
            return child

    async def abort(self, conversation: ConversationId, *, background: bool, keep_queued: bool) -> list[TaskId]:
        """Mark a conversation's work for abort and withdraw its queue, in one commit; tell what was marked."""
        async with self.session.transaction() as tx:
            await tx.conversation(conversation)
            marked = await self.tasks.mark_conversation(tx, conversation, background=background)
            if not keep_queued:
                await withdraw_queued(tx, conversation)
        return marked

    async def wait_ended(self, tasks: list[TaskId]) -> None:
        """Wait until tasks have ended. Starts scheduling: somebody has to clean up."""
        await self.tasks.resume()
        for task in tasks:
            await self.tasks.wait(task)

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

    async def abort_task(self, id: TaskId) -> bool:
        """Mark one task for abort, and what is below it; wait until it has ended. False if it had ended already."""
        async with self.session.transaction() as tx:
            marked = await tx.abort_task(id)
        if marked:
            await self.wait_ended([id])
        return marked

    async def wait_idle(self, conversation: ConversationId) -> None:
        """Wait until a conversation has no open run and no live foreground task."""
        await self.tasks.resume()
        await self.until(lambda: self._is_idle(conversation))

    async def wait_parked(self) -> Wake:
        """Wait until nothing could run (see `Harness.wait_parked`)."""
        await self.tasks.resume()

        async def parked() -> bool:
            return not self.tasks.wake().active

        await self.until(parked)
        await self.session.store.settled()
        return self.tasks.wake()

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Look again after each commit or more until it holds. Raises if the session ends before."""
        changed = asyncio.Event()
        self._idle.append(changed)
        try:
            while not await holds():
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

    def _published(self, publication: Publication) -> None:
        for submission in publication.submissions:
            settled = settled_of(submission)
            if settled is not None:
                for future in self._waiting.pop(submission.id, ()):
                    if not future.done():
                        future.set_result(settled)
        for changed in self._idle:
            changed.set()

    def _ended(self, error: Error) -> None:
        """The session ended: nobody may wait for ever."""
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        for changed in self._idle:
            changed.set()
