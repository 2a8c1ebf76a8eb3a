"""Scans: pages, orders, ranges, filters, and what a fork can see."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from perdure.base.errors import StorageError
from perdure.base.ids import ConversationId, EntryId, TaskId
from perdure.storage.records import Conversation, Document, Entry, LiveTask, Submission, Task
from perdure.testing.storage_suite import Script, StorageSuite, created, updated

ROOT = ConversationId(1)
R = TypeVar("R", Conversation, Task, Submission, Document, LiveTask)


async def paged(scan: Callable[..., Awaitable[Sequence[R]]], size: int, *args: Any, **filters: Any) -> list[R]:
    """All pages of a scan, checking that none but the last is short."""
    found: list[R] = []
    cursor = 0
    while True:
        page = await scan(*args, cursor=cursor, limit=size, **filters)
        assert len(page) <= size
        found.extend(page)
        if len(page) < size:
            return found
        cursor = page[-1].id


class EntryCases(StorageSuite):
    """Entries of a conversation and of a fork."""

    async def ids(self, script: Script, conversation: int, **how: Any) -> list[int]:
        """Ids of a scan."""
        return [one.id for one in await script.storage.scan_entries(ConversationId(conversation), **how)]

    async def test_entries_come_in_either_order_range_and_page(self, script: Script) -> None:
        entries = [script.entry(1) for _ in range(7)]
        await script.commit(entries=entries)
        ids: list[int] = [one.id for one in entries]
        assert await self.ids(script, 1) == ids
        assert await self.ids(script, 1, order="newest") == ids[::-1]
        assert await self.ids(script, 1, limit=3) == ids[:3]
        assert await self.ids(script, 1, limit=3, order="newest") == ids[:-4:-1]
        assert await self.ids(script, 1, after=ids[1], before=ids[5]) == ids[2:5]
        assert await self.ids(script, 1, after=ids[1], before=ids[5], order="newest") == ids[2:5][::-1]
        assert await self.ids(script, 1, after=ids[1], limit=2) == ids[2:4]
        assert await self.ids(script, 1, before=ids[4], order="newest", limit=2) == [ids[3], ids[2]]
        assert await self.ids(script, 1, after=ids[3], before=ids[4]) == []
        assert await self.ids(script, 1, after=ids[-1]) == []

    async def test_conversations_do_not_see_each_other(self, script: Script) -> None:
        other = script.conversation()
        mine, theirs = script.entry(1), script.entry(other.id)
        await script.commit(conversations=[other], entries=[mine, theirs])
        assert await self.ids(script, 1) == [mine.id]
        assert await self.ids(script, other.id) == [theirs.id]

    async def chain(self, script: Script) -> tuple[list[Entry], list[Conversation]]:
        """Root with 6 entries; a fork at its 4th with 4 of its own; a fork of that at its 2nd; one at an inherited."""
        root = [script.entry(1) for _ in range(6)]
        await script.commit(entries=root)
        child = script.conversation(parent=ROOT, fork_entry=root[3].id)
        own = [script.entry(child.id) for _ in range(4)]
        await script.commit(conversations=[child], entries=own)
        grandchild = script.conversation(parent=child.id, fork_entry=own[1].id)
        leaf = [script.entry(grandchild.id) for _ in range(2)]
        early = script.conversation(parent=grandchild.id, fork_entry=root[1].id)
        alone = script.entry(early.id)
        await script.commit(conversations=[grandchild, early], entries=[*leaf, alone])
        await script.commit(entries=[script.entry(1), script.entry(child.id)])
        return [*root[:4], *own[:2], *leaf], [child, grandchild, early]

    async def test_a_fork_sees_its_ancestors_up_to_each_edge(self, script: Script) -> None:
        visible, (child, grandchild, early) = await self.chain(script)
        ids: list[int] = [one.id for one in visible]
        assert await self.ids(script, grandchild.id) == ids
        assert await self.ids(script, grandchild.id, order="newest") == ids[::-1]
        assert (await self.ids(script, child.id))[:6] == ids[:6]
        assert len(await self.ids(script, child.id)) == 9
        assert len(await self.ids(script, 1)) == 7
        of_early = await self.ids(script, early.id)
        assert of_early[:2] == ids[:2]
        assert len(of_early) == 3

    async def test_pages_and_ranges_cross_the_edges_of_forks(self, script: Script) -> None:
        visible, (_, grandchild, _) = await self.chain(script)
        ids: list[int] = [one.id for one in visible]
        for size in (1, 2, 3, 5, 20):
            found: list[int] = []
            after = None
            while page := await self.ids(script, grandchild.id, after=after, limit=size):
                found.extend(page)
                after = page[-1]
            assert found == ids
            back: list[int] = []
            before = None
            while page := await self.ids(script, grandchild.id, before=before, limit=size, order="newest"):
                back.extend(page)
                before = page[-1]
            assert back == ids[::-1]
        assert await self.ids(script, grandchild.id, after=ids[2], before=ids[6]) == ids[3:6]

    async def test_what_the_parent_writes_after_the_fork_is_not_seen(self, script: Script) -> None:
        first = script.entry(1)
        await script.commit(entries=[first])
        fork = script.conversation(parent=ROOT, fork_entry=first.id)
        await script.commit(conversations=[fork])
        assert await self.ids(script, fork.id) == [first.id]
        await script.commit(entries=[script.entry(1, head=first.id)])
        assert await self.ids(script, fork.id) == [first.id]
        assert await script.storage.latest_head(fork.id) is None

    async def test_the_latest_head_is_the_newest_visible_one_at_or_before(self, script: Script) -> None:
        plain = script.entry(1)
        old = script.entry(1, head=plain.id)
        new_id = EntryId(script.next_id)
        new = script.entry(1, head=new_id)
        last = script.entry(1)
        await script.commit(entries=[plain, old, new, last])
        head = script.storage.latest_head
        assert await head(ROOT) == new
        assert await head(ROOT, new.id) == new
        assert await head(ROOT, EntryId(new.id - 1)) == old
        assert await head(ROOT, plain.id) is None
        fork = script.conversation(parent=ROOT, fork_entry=old.id)
        own = script.entry(fork.id)
        await script.commit(conversations=[fork], entries=[own])
        assert await head(fork.id) == old
        mine = script.entry(fork.id, head=own.id)
        await script.commit(entries=[mine])
        assert await head(fork.id) == mine
        assert await head(fork.id, own.id) == old
        assert await head(ROOT) == new

    async def test_a_long_chain_of_forks_reads_to_the_root(self, script: Script) -> None:
        first = script.entry(1, head=EntryId(script.next_id))
        await script.commit(entries=[first])
        visible, at, edge = [first.id], ROOT, first.id
        for _ in range(40):
            fork = script.conversation(parent=at, fork_entry=edge)
            entry = script.entry(fork.id)
            await script.commit(conversations=[fork], entries=[entry])
            visible.append(entry.id)
            at, edge = fork.id, entry.id
        assert await self.ids(script, at) == visible
        assert await script.storage.latest_head(at) == first

    async def test_conversations_are_found_by_owner(self, script: Script) -> None:
        task = script.task(1)
        owned = [script.conversation(owner=task.id) for _ in range(5)]
        await script.commit(conversations=[*owned, script.conversation(owner=TaskId(999))], tasks=created(task))
        assert await paged(script.storage.scan_conversations, 2, owner=task.id) == owned
        assert len(await paged(script.storage.scan_conversations, 2)) == 7
        assert await paged(script.storage.scan_conversations, 2, owner=TaskId(5)) == []


class TaskCases(StorageSuite):
    """Tasks by everything they are found by."""

    async def test_tasks_are_found_by_each_filter(self, script: Script) -> None:
        other = script.conversation()
        owner = script.task(1, kind="parent", status="running")
        tasks = [
            script.task(1, kind="a", status="pending", owner=owner.id),
            script.task(1, kind="b", status="running", background=True),
            script.task(1, kind="a", status="terminal", owner=owner.id, abort_requested=True),
            script.task(other.id, kind="a", status="running", owner=owner.id, background=True),
            script.task(other.id, kind="b", status="completing", abort_requested=True),
        ]
        await script.commit(conversations=[other], tasks=created(owner, *tasks))
        every = [owner, *tasks]
        questions: list[dict[str, Any]] = [
            {"conversation": ROOT},
            {"conversation": ROOT, "live": True},
            {"conversation": ROOT, "live": False},
            {"conversation": other.id, "kind": "a"},
            {"conversation": ROOT, "kind": "never-stored"},
            {"conversation": ROOT, "status": "terminal"},
            {"conversation": ROOT, "background": True},
            {"conversation": ROOT, "background": False, "live": True},
            {"conversation": other.id, "abort_requested": True},
            {"owner": owner.id},
            {"owner": owner.id, "live": True},
            {"owner": owner.id, "conversation": ROOT, "kind": "a"},
            {"live": True},
            {"live": True, "status": "running"},
            {"live": True, "kind": "a", "background": True},
        ]
        for question in questions:
            wanted = [task for task in every if _fits(task, question)]
            assert await paged(script.storage.scan_tasks, 2, **question) == wanted, question

    async def test_a_scan_that_would_read_everything_is_refused(self, script: Script) -> None:
        with pytest.raises(StorageError):
            await script.storage.scan_tasks(kind="a")
        with pytest.raises(StorageError):
            await script.storage.scan_tasks(live=False)
        with pytest.raises(StorageError):
            await script.storage.scan_submissions(status="queued")

    async def test_waiting_tasks_are_found_by_what_they_wait_for_until_they_wake(self, script: Script) -> None:
        targets = [script.task(1) for _ in range(2)]
        waiters = [script.task(1, status="waiting", on=(targets[0].id, targets[1].id)) for _ in range(3)]
        waiters.append(script.task(1, status="waiting", on=(targets[1].id,)))
        await script.commit(tasks=created(*targets, *waiters))
        scan = script.storage.scan_tasks
        assert await paged(scan, 2, waiting_on=targets[0].id) == waiters[:3]
        assert await paged(scan, 2, waiting_on=targets[1].id) == waiters
        assert await paged(scan, 2, waiting_on=targets[1].id, kind="none") == []
        awake = msgspec.structs.replace(waiters[0], status="running", on=())
        narrowed = msgspec.structs.replace(waiters[1], on=(targets[0].id,))
        ended = msgspec.structs.replace(waiters[2], status="terminal", on=(), ended_at=7)
        await script.commit(tasks=updated(awake, narrowed, ended))
        assert list(await scan(waiting_on=targets[0].id)) == [narrowed]
        assert list(await scan(waiting_on=targets[1].id)) == [waiters[3]]
        again = msgspec.structs.replace(awake, status="waiting", on=(targets[1].id,))
        await script.commit(tasks=updated(again))
        assert list(await scan(waiting_on=targets[1].id)) == [again, waiters[3]]

    async def test_deadlines_come_earliest_first_and_go_with_the_sleep(self, script: Script) -> None:
        deadlines = [500, 100, 300, 100, 9_000_000_000_000]
        sleeping = [script.task(1, status="sleeping", deadline=when) for when in deadlines]
        endless = script.task(1, status="sleeping")
        await script.commit(tasks=created(*sleeping, endless, script.task(1)))
        scan = script.storage.scan_deadlines

        async def ids(**how: Any) -> list[int]:
            return [one.id for one in await scan(**how)]

        order = [sleeping[1].id, sleeping[3].id, sleeping[2].id, sleeping[0].id, sleeping[4].id]
        assert await ids() == order
        assert await ids(until=300) == order[:3]
        assert await ids(until=299) == order[:2]
        assert await ids(limit=1) == order[:1]
        awake = msgspec.structs.replace(sleeping[1], status="running", deadline=None)
        later = msgspec.structs.replace(sleeping[3], deadline=800)
        ended = msgspec.structs.replace(sleeping[2], status="terminal", deadline=None, ended_at=1)
        await script.commit(tasks=updated(awake, later, ended))
        assert await ids() == [sleeping[0].id, sleeping[3].id, sleeping[4].id]

    async def test_the_light_scan_has_every_live_task_and_no_ended_one(self, script: Script) -> None:
        tasks = [
            script.task(1, status="sleeping", deadline=5, asks_again=True, input=b'"' + b"x" * 5000 + b'"'),
            script.task(1, status="waiting", on=(TaskId(4), TaskId(3)), owner=TaskId(2)),
            script.task(1, status="running", background=True, abort_requested=True),
            script.task(1, status="terminal"),
            script.task(1),
        ]
        await script.commit(tasks=created(*tasks))
        scan = script.storage.scan_live
        assert await paged(scan, 2) == [_light(task) for task in tasks if task.status != "terminal"]
        ended = [msgspec.structs.replace(task, status="terminal", on=(), deadline=None) for task in tasks[:3]]
        await script.commit(tasks=updated(*ended))
        assert list(await scan()) == [_light(tasks[4])]
        await script.commit(tasks=updated(tasks[2]))
        assert list(await scan()) == [_light(tasks[2]), _light(tasks[4])]

    async def test_submissions_are_found_by_conversation_status_and_liveness(self, script: Script) -> None:
        other = script.conversation()
        submissions = [
            script.submission(1, status="queued"),
            script.submission(1, status="placed"),
            script.submission(1, status="done"),
            script.submission(1, status="unanswered"),
            script.submission(other.id, status="queued", request_id="x"),
        ]
        await script.commit(conversations=[other], submissions=submissions)
        scan = script.storage.scan_submissions
        assert await paged(scan, 2, conversation=ROOT) == submissions[:4]
        assert await paged(scan, 1, conversation=ROOT, live=True) == submissions[:2]
        assert await paged(scan, 1, conversation=ROOT, live=False) == submissions[2:4]
        assert await paged(scan, 1, conversation=ROOT, status="placed") == submissions[1:2]
        assert await paged(scan, 1, live=True) == [*submissions[:2], submissions[4]]
        assert await paged(scan, 1, live=True, status="queued") == [submissions[0], submissions[4]]
        done = msgspec.structs.replace(submissions[0], status="done", answer=EntryId(9))
        placed = msgspec.structs.replace(submissions[4], status="placed")
        await script.commit(submissions=[done, placed])
        assert await paged(scan, 1, live=True) == [submissions[1], placed]
        assert await script.storage.submission_by_request(other.id, "x") == placed


def _fits(task: Task, question: dict[str, Any]) -> bool:
    live = question.get("live")
    if live is not None and (task.status != "terminal") != live:
        return False
    return all(getattr(task, name) == value for name, value in question.items() if name != "live")


def _light(task: Task) -> LiveTask:
    return LiveTask(**{name: getattr(task, name) for name in LiveTask.__struct_fields__})
