"""Commits: whole or not at all, in order, and given back as they were."""

from pathlib import Path

import msgspec
import pytest

from perdure.base.errors import StorageError, StorageInUse, StorageRejected
from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId
from perdure.storage.protocol import Storage
from perdure.storage.records import Batch, Blob, Conversation, DocumentCopy, Revision, StoredDocument, TaskWrite
from perdure.testing.storage_suite import ODD_TEXTS, Script, StorageSuite, created, updated

ROOT = ConversationId(1)
BIG = b'"' + b"x" * 300_000 + b'"'


class OpenCases(StorageSuite):
    """Opening, closing, and where a store stands."""

    async def test_a_new_store_begins_at_id_1_and_seq_0(self, tmp_path: Path) -> None:
        store = self.make_storage(tmp_path)
        head = await store.open()
        assert (head.next_id, head.seq) == (1, 0)
        await store.close()

    async def test_the_head_survives_and_every_open_is_a_later_epoch(self, tmp_path: Path) -> None:
        store = self.make_storage(tmp_path)
        first = await store.open()
        script = Script(store)
        await script.commit(conversations=[script.conversation()])
        await script.commit(entries=[script.entry(1), script.entry(1)])
        await store.close()
        again = self.make_storage(tmp_path)
        head = await again.open()
        assert (head.next_id, head.seq) == (4, 2)
        assert head.epoch > first.epoch
        assert head.schema_version == first.schema_version
        await again.close()

    async def test_a_second_opener_is_told_at_once_who_has_it(self, tmp_path: Path) -> None:
        store = self.make_storage(tmp_path)
        await store.open()
        with pytest.raises(StorageInUse) as caught:
            await self.make_storage(tmp_path).open()
        assert caught.value.owner
        await store.close()
        again = self.make_storage(tmp_path)
        await again.open()
        await again.close()

    async def test_close_may_be_called_twice(self, store: Storage) -> None:
        await store.close()
        await store.close()

    async def test_a_closed_store_refuses_reads_and_commits(self, store: Storage) -> None:
        await store.close()
        with pytest.raises(StorageError):
            await store.conversation(ROOT)
        with pytest.raises(StorageError):
            await self.inner(store).commit(Batch(1, 1))

    async def test_it_says_where_it_lies(self, store: Storage) -> None:
        assert store.location

    def inner(self, store: Storage) -> Storage:
        """The store without a wrapper around it."""
        inner: Storage = getattr(store, "inner", store)
        return inner


class AtomicityCases(StorageSuite):
    """A refused commit had no effect."""

    async def refused(self, script: Script, batch: Batch) -> None:
        """The batch is refused, and the next proper commit goes through."""
        with pytest.raises(StorageRejected):
            await script.storage.commit(batch)
        script.next_id = max(script.next_id, batch.next_id)
        await script.commit(entries=[script.entry(1)])

    async def test_a_seq_that_does_not_follow_is_refused(self, script: Script) -> None:
        for steps in (0, 2, -1):
            await self.refused(script, Batch(script.seq + steps, script.next_id))

    async def test_a_next_id_that_goes_back_is_refused(self, script: Script) -> None:
        await script.commit(entries=[script.entry(1)])
        await self.refused(script, Batch(script.seq + 1, script.next_id - 1))

    async def test_a_second_conversation_with_an_id_is_refused(self, script: Script) -> None:
        await self.refused(script, script.batch(conversations=[Conversation(ROOT, 9)]))
        found = await script.storage.conversation(ROOT)
        assert found is not None
        assert found.seq == 1

    async def test_a_second_entry_with_an_id_is_refused_and_the_first_stays(self, script: Script) -> None:
        entry = script.entry(1, data=b'"first"')
        await script.commit(entries=[entry])
        await self.refused(script, script.batch(entries=[msgspec.structs.replace(entry, data=b'"second"')]))
        assert await script.storage.entry(entry.id) == entry

    async def test_a_task_created_twice_and_a_task_that_was_never_created_are_refused(self, script: Script) -> None:
        task = script.task(1)
        await script.commit(tasks=created(task))
        await self.refused(script, script.batch(tasks=created(task)))
        await self.refused(script, script.batch(tasks=updated(msgspec.structs.replace(task, id=TaskId(999)))))
        waiting = msgspec.structs.replace(task, id=TaskId(999), status="waiting", on=(task.id,))
        await self.refused(script, script.batch(tasks=updated(waiting)))
        assert await script.storage.task(TaskId(999)) is None

    async def test_a_document_created_twice_is_refused(self, script: Script) -> None:
        document = script.document()
        await script.commit(documents=[document], revisions=[script.base(document, b"1")])
        await self.refused(script, script.batch(documents=[document]))

    async def test_revisions_without_document_base_or_order_are_refused(self, script: Script) -> None:
        document = script.document()
        await self.refused(script, script.batch(revisions=[Revision(DocumentId(77), script.seq + 1, True, 1, b"1")]))
        document = script.document()
        await self.refused(script, script.batch(documents=[document], revisions=[script.delta(document, b"[]")]))
        document = script.document()
        await script.commit(documents=[document], revisions=[script.base(document, b"1")])
        await self.refused(script, script.batch(revisions=[Revision(document.id, script.seq, True, 1, b"2")]))
        twice = [script.delta(document, b"[1]"), script.delta(document, b"[2]")]
        await self.refused(script, script.batch(revisions=twice))
        found = await script.storage.document(document.id)
        assert found is not None
        assert found.base.body == b"1"
        assert found.deltas == ()

    async def test_a_copy_of_nothing_is_refused(self, script: Script) -> None:
        target = script.document()
        copy = DocumentCopy(DocumentId(77), script.seq, target)
        await self.refused(script, script.batch(copies=[copy]))
        assert await script.storage.document(target.id) is None

    async def test_a_request_id_is_used_once_in_a_conversation(self, script: Script) -> None:
        other = script.conversation()
        first = script.submission(1, request_id="r")
        await script.commit(conversations=[other], submissions=[first])
        await self.refused(script, script.batch(submissions=[script.submission(1, request_id="r")]))
        elsewhere = script.submission(other.id, request_id="r")
        await script.commit(submissions=[elsewhere])
        assert await script.storage.submission_by_request(ROOT, "r") == first
        assert await script.storage.submission_by_request(other.id, "r") == elsewhere

    async def test_nothing_of_a_refused_commit_is_left(self, script: Script) -> None:
        task, document = script.task(1, kind="old"), script.document(kind="old-plan")
        await script.commit(tasks=created(task), documents=[document], revisions=[script.base(document, b"1")])
        entry, fresh, submission = (
            script.entry(1, kind="new-kind"),
            script.task(1),
            script.submission(1, request_id="q"),
        )
        conversation, plan = script.conversation(), script.document(kind="new-plan")
        batch = script.batch(
            conversations=[conversation],
            entries=[entry],
            tasks=[*created(fresh), *updated(msgspec.structs.replace(task, status="running", state=b"2"))],
            submissions=[submission],
            documents=[plan, msgspec.structs.replace(document, retired=script.seq + 1)],
            revisions=[script.base(plan, b"1"), script.base(document, b"2"), Revision(DocumentId(99), 0, True, 1, b"")],
            blobs=[Blob("aa", "text/plain", b"bytes")],
        )
        await self.refused(script, batch)
        store = script.storage
        assert await store.conversation(conversation.id) is None
        assert await store.entry(entry.id) is None
        assert await store.task(fresh.id) is None
        assert await store.task(task.id) == task
        assert await store.submission(submission.id) is None
        assert await store.submission_by_request(ROOT, "q") is None
        assert await store.document(plan.id) is None
        assert await store.blob("aa") is None
        kept = await store.document(document.id)
        assert kept is not None
        assert kept.base.body == b"1"
        assert kept.document.retired is None
        # Words learned in the refused commit must not leak into later ones.
        late = [script.entry(1, kind="other-kind"), script.entry(1, kind="new-kind")]
        await script.commit(entries=late)
        assert [await store.entry(one.id) for one in late] == late


class ContentCases(StorageSuite):
    """What goes in comes out."""

    async def test_every_field_of_conversations_entries_and_documents_comes_back(self, script: Script) -> None:
        fork = script.conversation(parent=ROOT, fork_entry=EntryId(1), owner=TaskId(9))
        entry = script.entry(
            1,
            kind="k",
            version=3,
            messages=b'[{"a":1}]',
            data=b'{"b":2}',
            task=TaskId(9),
            head=EntryId(2),
            edits=EntryId(1),
        )
        document = script.document("task", 9, kind="d", key="member", rewindable=True, fork="as_of")
        base = script.base(document, b"{}", version=4)
        await script.commit(conversations=[fork], entries=[entry], documents=[document], revisions=[base])
        assert await script.storage.conversation(fork.id) == fork
        assert await script.storage.entry(entry.id) == entry
        stored = await script.storage.document(document.id)
        assert stored == StoredDocument(document, base, ())

    async def test_every_field_of_tasks_and_submissions_comes_back(self, script: Script) -> None:
        task = script.task(
            1,
            kind="t",
            version=9,
            status="waiting",
            input=b"[1]",
            state=b"[2]",
            memos=b"[3]",
            owner=TaskId(8),
            background=True,
            abort_requested=True,
            on=(TaskId(7), TaskId(5), TaskId(6)),
            deadline=2**52,
            asks_again=True,
            started_at=1,
            ended_at=2,
        )
        submission = script.submission(
            1,
            status="placed",
            kind="write",
            content=b"{}",
            digest=bytes(range(32)),
            request_id="id",
            when_busy="steer",
            notify_task=TaskId(8),
            notify_key="k",
            entry=EntryId(3),
            answer=EntryId(4),
            reason="why",
            detail="more",
        )
        plain, simple = script.task(1), script.submission(1)
        await script.commit(tasks=created(task, plain), submissions=[submission, simple])
        assert await script.storage.task(task.id) == task
        assert await script.storage.task(plain.id) == plain
        assert await script.storage.submission(submission.id) == submission
        assert await script.storage.submission(simple.id) == simple

    @pytest.mark.parametrize("text", ODD_TEXTS)
    async def test_any_text_comes_back_in_every_field(self, script: Script, text: str) -> None:
        content = msgspec.json.encode(text)
        entry = script.entry(1, kind=text, messages=b"[" + content + b"]", data=content)
        task = script.task(1, kind=text, input=content, state=content, memos=content)
        submission = script.submission(
            1, request_id=text, when_busy=text, notify_key=text, reason=text, detail=text, content=content
        )
        document = script.document(kind=text, key=text)
        blob = Blob("d" * 64, text, text.encode())
        await script.commit(
            entries=[entry],
            tasks=created(task),
            submissions=[submission],
            documents=[document],
            revisions=[script.base(document, content)],
            blobs=[blob],
        )
        store = script.storage
        assert await store.entry(entry.id) == entry
        assert await store.task(task.id) == task
        assert await store.submission_by_request(ROOT, text) == submission
        assert list(await store.scan_tasks(conversation=ROOT, kind=text)) == [task]
        assert list(await store.scan_documents("session", 0, kind=text)) == [document]
        assert await store.blob(blob.digest) == blob

    async def test_big_values_come_back_and_small_ones_may_take_their_place(self, script: Script) -> None:
        entry = script.entry(1, messages=b"[" + BIG + b"]", data=BIG)
        task = script.task(1, input=BIG, state=BIG, memos=BIG)
        submission = script.submission(1, content=BIG)
        document = script.document()
        await script.commit(
            entries=[entry],
            tasks=created(task),
            submissions=[submission],
            documents=[document],
            revisions=[script.base(document, BIG)],
            blobs=[Blob("b" * 64, "image/png", bytes(range(256)) * 4000)],
        )
        store = script.storage
        assert await store.entry(entry.id) == entry
        assert await store.task(task.id) == task
        assert await store.submission(submission.id) == submission
        small = msgspec.structs.replace(task, input=b"1", state=b"2", memos=None)
        settled = msgspec.structs.replace(submission, content=b"3", status="done")
        await script.commit(tasks=[TaskWrite(small, False, input_changed=True)], submissions=[settled])
        assert await store.task(task.id) == small
        assert await store.submission(submission.id) == settled
        await script.commit(tasks=[TaskWrite(task, False, input_changed=True)], submissions=[submission])
        assert await store.task(task.id) == task
        assert await store.submission(submission.id) == submission

    async def test_the_stored_input_stays_where_it_is_said_to_be_unchanged(self, script: Script) -> None:
        for content in (b'"small"', BIG):
            task = script.task(1, input=content)
            await script.commit(tasks=created(task))
            await script.commit(tasks=updated(msgspec.structs.replace(task, input=b"null", state=b"1")))
            assert await script.storage.task(task.id) == msgspec.structs.replace(task, state=b"1")

    async def test_a_task_is_replaced_whole(self, script: Script) -> None:
        other = script.conversation()
        first = script.task(1, memos=b"1", started_at=5)
        later = msgspec.structs.replace(
            first,
            conversation=other.id,
            kind="moved",
            version=2,
            owner=TaskId(1),
            background=True,
            memos=None,
            started_at=None,
        )
        await script.commit(conversations=[other], tasks=created(first))
        await script.commit(tasks=updated(later))
        assert await script.storage.task(first.id) == later
        assert list(await script.storage.scan_tasks(conversation=ROOT)) == []
        assert list(await script.storage.scan_tasks(conversation=other.id)) == [later]
        await script.commit(tasks=updated(first))
        assert await script.storage.task(first.id) == first

    async def test_a_submission_is_replaced_whole(self, script: Script) -> None:
        first = script.submission(1, request_id="a", detail="x")
        later = msgspec.structs.replace(
            first, request_id="b", detail=None, digest=b"9", kind="write", status="unanswered"
        )
        await script.commit(submissions=[first])
        await script.commit(submissions=[later])
        assert await script.storage.submission(first.id) == later
        assert await script.storage.submission_by_request(ROOT, "a") is None
        assert await script.storage.submission_by_request(ROOT, "b") == later

    async def test_a_batch_changed_after_its_commit_changes_nothing(self, script: Script) -> None:
        entry, more = script.entry(1), script.entry(1)
        batch = script.batch(entries=[entry])
        await script.storage.commit(batch)
        batch.entries.append(more)
        batch.entries.clear()
        assert list(await script.storage.scan_entries(ROOT)) == [entry]

    async def test_a_page_changed_by_its_reader_changes_nothing(self, script: Script) -> None:
        entry = script.entry(1)
        await script.commit(entries=[entry])
        page = await script.storage.scan_entries(ROOT)
        if isinstance(page, list):
            page.clear()
        assert list(await script.storage.scan_entries(ROOT)) == [entry]

    async def test_a_blob_is_written_once_and_may_be_named_again(self, script: Script) -> None:
        blob = Blob("e" * 64, "text/plain", b"\x00\xff")
        await script.commit(blobs=[blob])
        await script.commit(blobs=[blob])
        assert await script.storage.blob(blob.digest) == blob
        assert await script.storage.blob("f" * 64) is None

    async def test_what_was_never_written_is_none(self, script: Script) -> None:
        store = script.storage
        assert await store.conversation(ConversationId(9)) is None
        assert await store.entry(EntryId(1)) is None
        assert await store.task(TaskId(1)) is None
        assert await store.submission(SubmissionId(1)) is None
        assert await store.submission_by_request(ROOT, "x") is None
        assert await store.document(DocumentId(1)) is None
        assert list(await store.scan_entries(ConversationId(9))) == []
        assert await store.latest_head(ConversationId(9)) is None

    async def test_a_commit_of_nothing_and_a_progress_commit_move_the_seq(self, script: Script) -> None:
        document = script.document()
        await script.commit(documents=[document], revisions=[script.base(document, b'""')])
        await script.commit()
        await script.commit(progress=True, revisions=[script.delta(document, b"[1]")])
        await script.commit(progress=True, revisions=[script.delta(document, b"[2]")])
        found = await script.storage.document(document.id)
        assert found is not None
        assert [one.body for one in found.deltas] == [b"[1]", b"[2]"]

    async def test_ids_may_be_skipped(self, script: Script) -> None:
        script.next_id = 5000
        entry = script.entry(1)
        await script.commit(entries=[entry])
        assert await script.storage.entry(EntryId(5000)) == entry
