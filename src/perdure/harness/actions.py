"""What handles do to a session: admit, settle, fork, abort, wait. One commit each where they write."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.agent.agent import Agent
from perdure.agent.compactions import checked_instructions, made_by
from perdure.agent.documents import LiveDoc
from perdure.agent.room import start_compaction
from perdure.agent.runs import Starter, arrive, withdraw_queued
from perdure.agent.submissions import Draft, admit, dequeue, settle, settled_of
from perdure.base.errors import Error, NotFound
from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.extensions.settled import Settled
from perdure.harness.compaction import Compacted
from perdure.harness.keys import check_key, take_key, under_key
from perdure.session.publication import Publication
from perdure.session.session import Session
from perdure.tasks.tasks import Tasks, Wake
from perdure.tasks.transaction import TaskTransaction


class Actions:
    """The verbs behind `Conversation` and `Submission`."""

    def __init__(self, session: Session[TaskTransaction], agent: Agent, tasks: Tasks, start: Starter) -> None:
        self._session = session
        self._agent = agent
        self._tasks = tasks
        self._start = start
        self._waiting: dict[SubmissionId, list[asyncio.Future[Settled]]] = {}
        self._idle: list[asyncio.Event] = []
        session.listeners.append(self._published)
        session.on_end.append(self._ended)

    async def admit(self, conversation: ConversationId, draft: Draft) -> SubmissionId:
        """Admit a submission (see `Conversation.submit`)."""
        async with self._session.transaction() as tx:
            submission, new = await admit(tx, conversation, draft)
            if new:
                await arrive(tx, conversation, submission, self._agent.settings, self._start)
        await self._tasks.resume()
        return submission.id

    async def wait_settled(self, id: SubmissionId) -> Settled:
        """Wait until a submission is settled. Starts scheduling. Raises if the session ends before."""
        await self._tasks.resume()
        record = await self._session.store.submission(id)
        if record is None:
            raise NotFound(f"no submission {id}")
        settled = settled_of(record)
        if settled is not None and id not in self._session.store.working.submissions:
            await self._session.store.settled()
            return settled
        self._session.check_usable()
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(id, []).append(future)
        return await future

    async def fork(
        self, parent: ConversationId, entry: EntryId, *, owner: TaskId | None, key: str | None
    ) -> ConversationId:
        """Fork a conversation (see `Conversation.fork`)."""
        if key is not None:
            check_key(key)
        async with self._session.transaction() as tx:
            first = None if key is None else await under_key(tx, key)
            if first is not None:
                return first
            child = await tx.fork(parent, entry, owner=owner)
            if key is not None:
                await take_key(tx, key, child)
            return child

    async def abort(self, conversation: ConversationId, *, background: bool, keep_queued: bool) -> list[TaskId]:
        """Mark a conversation's work for abort and withdraw its queue, in one commit; tell what was marked."""
        async with self._session.transaction() as tx:
            await tx.conversation(conversation)
            marked = await self._tasks.mark_conversation(tx, conversation, background=background)
            if not keep_queued:
                await withdraw_queued(tx, conversation)
        return marked

    async def wait_ended(self, tasks: list[TaskId]) -> None:
        """Wait until tasks have ended. Starts scheduling: somebody has to clean up."""
        await self._tasks.resume()
        for task in tasks:
            await self._tasks.wait(task)

    async def abort_submission(self, conversation: ConversationId, id: SubmissionId) -> bool:
        """Withdraw a queued submission, or abort the run of a placed one."""
        async with self._session.transaction() as tx:
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

    async def compact(self, conversation: ConversationId, instructions: str | None) -> TaskId:
        """Begin a compaction, or join one (see `Conversation.compact`). Starts no scheduling."""
        wanted = checked_instructions(instructions)
        async with self._session.transaction() as tx:
            await tx.conversation(conversation)
            return await start_compaction(tx, conversation, "manual", instructions=wanted)

    async def wait_compacted(self, conversation: ConversationId, task: TaskId) -> Compacted:
        """Wait until a compaction has ended and its summary is in the transcript, or cannot get there for now."""
        await self._tasks.resume()
        ended = made_by(await self._tasks.wait(task))
        if ended["status"] != "queued":
            return Compacted(ended["status"], ended["entry"], ended["reason"])
        submission, settled = SubmissionId(ended["submission"]), None

        async def decided() -> bool:
            nonlocal settled
            record = await self._session.store.submission(submission)
            settled = None if record is None else settled_of(record)
            live: Any = await self._session.value_of(LiveDoc, conversation)
            return settled is not None or live is None or live["run"] is None  # without a run nothing places it

        await self._until(decided)
        if settled is None:
            return Compacted("queued")
        await self._session.store.settled()
        return Compacted("placed" if settled.status == "done" else "stale", settled.answer, settled.detail)

    async def abort_task(self, id: TaskId) -> bool:
        """Mark one task for abort, and what is below it; wait until it has ended. False if it had ended already."""
        async with self._session.transaction() as tx:
            marked = await tx.abort_task(id)
        if marked:
            await self.wait_ended([id])
        return marked

    async def wait_idle(self, conversation: ConversationId) -> None:
        """Wait until a conversation has no open run and no live foreground task."""
        await self._tasks.resume()
        await self._until(lambda: self._is_idle(conversation))

    async def wait_parked(self) -> Wake:
        """Wait until nothing could run (see `Harness.wait_parked`)."""
        await self._tasks.resume()

        async def parked() -> bool:
            return not self._tasks.wake().active

        await self._until(parked)
        await self._session.store.settled()
        return self._tasks.wake()

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Look again after each commit or more until it holds. Raises if the session ends before."""
        changed = asyncio.Event()
        self._idle.append(changed)
        try:
            while not await holds():
                self._session.check_usable()
                changed.clear()
                await changed.wait()
        finally:
            self._idle.remove(changed)

    async def _is_idle(self, conversation: ConversationId) -> bool:
        if self._tasks.index.in_foreground(conversation):
            return False
        live: Any = await self._session.value_of(LiveDoc, conversation)
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
