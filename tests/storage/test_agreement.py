"""Whatever is committed in whatever order, SQLite and JSONL answer as memory does."""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure.base.errors import Error
from perdure.base.ids import ConversationId, DocumentId, EntryId, SubmissionId, TaskId
from perdure.storage.jsonl.store import JsonlStorage
from perdure.storage.memory import MemoryStorage
from perdure.storage.protocol import Durability, Storage
from perdure.storage.records import Batch, Blob, Document, DocumentCopy, Revision, Scope, Submission, Task, TaskWrite
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.storage_conformance import Script

T = TypeVar("T")

WORDS = st.sampled_from(["a", "b", "", "\x00", "ü"])
BODIES = st.sampled_from([b"1", b'"two"', b"[]", b"null", b'"' + b"x" * 3000 + b'"'])
FLAGS = st.booleans()
TASK_STATUS = st.sampled_from(["pending", "running", "waiting", "sleeping", "completing", "terminal"])
SUBMISSION_STATUS = st.sampled_from(["queued", "placed", "done", "unanswered"])
SCOPES: tuple[Scope, ...] = ("session", "conversation", "task")


class Agreement(RuleBasedStateMachine):
    """All stores get the same batches, also such as must be refused, and are asked the same questions."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.memory = MemoryStorage()
        self.script = Script(self.memory)
        self.tasks: dict[int, Task] = {}
        self.submissions: dict[int, Submission] = {}
        self.documents: dict[int, Document] = {}
        self.ids: list[int] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize(power=FLAGS)
    def start(self, power: bool) -> None:
        self.power = power
        self.stores = self.make()
        self.run(self.memory.open())
        for store in self.stores:
            self.run(store.open())
        self.write(conversations=[self.script.conversation()])

    def make(self) -> list[Storage]:
        folder = Path(self.folder.name)
        durability: Durability = "power" if self.power else "process"
        return [
            SqliteStorage(folder / "session.db", durability=durability),
            JsonlStorage(folder / "session.jsonl", durability=durability),
        ]

    def write(self, **parts: Any) -> bool:
        batch = self.script.batch(**parts)
        outcomes = [self.attempt(store, batch) for store in (self.memory, *self.stores)]
        assert outcomes == outcomes[:1] * len(outcomes), outcomes
        if outcomes[0] != batch.seq:
            return False
        self.script.seq = batch.seq
        return True

    def attempt(self, store: Storage, batch: Batch) -> object:
        try:
            return self.run(store.commit(batch))
        except Error as error:
            return type(error)

    def some_id(self, data: st.DataObject) -> int:
        return data.draw(st.integers(1, max(2, self.script.next_id)))

    @rule(data=st.data(), count=st.integers(1, 4))
    def talk(self, data: st.DataObject, count: int) -> None:
        entries = []
        for _ in range(count):
            own = EntryId(self.script.next_id)
            entries.append(
                self.script.entry(
                    data.draw(st.sampled_from(self.conversations())),
                    kind=data.draw(WORDS),
                    data=data.draw(BODIES),
                    head=own if data.draw(FLAGS) else None,
                )
            )
        self.write(entries=entries)

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent = ConversationId(data.draw(st.sampled_from(self.conversations())))
        visible = self.run(self.memory.scan_entries(parent, limit=1000))
        if visible:
            edge = data.draw(st.sampled_from(list(visible))).id
            self.write(conversations=[self.script.conversation(parent=parent, fork_entry=edge, owner=TaskId(3))])

    @rule(data=st.data(), created=FLAGS, changed=FLAGS)
    def work(self, data: st.DataObject, created: bool, changed: bool) -> None:
        status = data.draw(TASK_STATUS)
        fields: dict[str, Any] = {
            "kind": data.draw(WORDS),
            "status": status,
            "input": data.draw(BODIES),
            "state": data.draw(BODIES),
            "memos": data.draw(st.none() | BODIES),
            "owner": data.draw(st.none() | st.integers(1, 5)),
            "background": data.draw(FLAGS),
            "on": tuple(data.draw(st.lists(st.integers(1, 8), max_size=3))) if status == "waiting" else (),
            "deadline": data.draw(st.none() | st.integers(1, 9)) if status == "sleeping" else None,
        }
        task = self.script.task(data.draw(st.sampled_from(self.conversations())), **fields)
        if not created and self.tasks:
            task = msgspec.structs.replace(task, id=data.draw(st.sampled_from(list(self.tasks))))
        if self.write(tasks=[TaskWrite(task, created, changed)]):
            self.tasks[task.id] = task

    @rule(data=st.data(), again=FLAGS, request=st.none() | WORDS)
    def submit(self, data: st.DataObject, again: bool, request: str | None) -> None:
        one = self.script.submission(
            data.draw(st.sampled_from(self.conversations())),
            status=data.draw(SUBMISSION_STATUS),
            content=data.draw(BODIES),
            request_id=request,
        )
        if again and self.submissions:
            one = msgspec.structs.replace(one, id=data.draw(st.sampled_from(list(self.submissions))))
        if self.write(submissions=[one]):
            self.submissions[one.id] = one

    @rule(data=st.data(), rewindable=FLAGS, begun=FLAGS)
    def begin_document(self, data: st.DataObject, rewindable: bool, begun: bool) -> None:
        scope = data.draw(st.sampled_from(SCOPES))
        key = data.draw(st.none() | WORDS)
        document = self.script.document(scope, 1, kind=data.draw(WORDS), key=key, rewindable=rewindable)
        revisions = [self.script.base(document, data.draw(BODIES))] if begun else []
        if self.write(documents=[document], revisions=revisions):
            self.documents[document.id] = document

    @rule(data=st.data(), base=FLAGS, progress=FLAGS)
    def edit_document(self, data: st.DataObject, base: bool, progress: bool) -> None:
        id = data.draw(st.sampled_from(list(self.documents))) if self.documents else self.some_id(data)
        revision = Revision(DocumentId(id), self.script.seq + 1, base, 1, data.draw(BODIES))
        self.write(revisions=[revision], progress=progress)

    @rule(data=st.data())
    def retire_document(self, data: st.DataObject) -> None:
        if self.documents:
            document = self.documents.pop(data.draw(st.sampled_from(list(self.documents))))
            self.write(documents=[msgspec.structs.replace(document, retired=self.script.seq + 1)])

    @rule(data=st.data(), rewindable=FLAGS)
    def copy_document(self, data: st.DataObject, rewindable: bool) -> None:
        source = data.draw(st.sampled_from(list(self.documents))) if self.documents else self.some_id(data)
        target = self.script.document("conversation", 1, rewindable=rewindable)
        copy = DocumentCopy(DocumentId(source), data.draw(st.integers(1, self.script.seq)), target)
        if self.write(copies=[copy]):
            self.documents[target.id] = target

    @rule(data=st.data())
    def write_twice(self, data: st.DataObject) -> None:
        """A record with an id that may be taken."""
        entry = msgspec.structs.replace(self.script.entry(1), id=EntryId(self.some_id(data)))
        self.write(entries=[entry], blobs=[Blob("a" * 64, "text/plain", data.draw(BODIES))])

    @rule()
    def reopen(self) -> None:
        for store in self.stores:
            self.run(store.close())
        self.stores = self.make()
        for store in self.stores:
            assert self.run(store.open()).seq == self.script.seq

    @rule()
    def rewrite(self) -> None:
        """The file of lines is rewritten compactly, however little that saves."""
        store = self.stores[-1]
        assert isinstance(store, JsonlStorage)
        assert store._file is not None
        assert store._index is not None
        self.run(store._rewrite(store._file, store._index))
        assert store._rewrite_above == 0

    def conversations(self) -> list[ConversationId]:
        return [one.id for one in self.run(self.memory.scan_conversations(limit=1000))]

    @invariant()
    def answers_agree(self) -> None:
        if self.script.seq:
            memory = self.run(self.answers(self.memory))
            for store in self.stores:
                assert self.run(self.answers(store)) == memory, store.location

    async def answers(self, store: Storage) -> list[object]:
        newest = self.script.next_id
        found: list[object] = [await store.scan_conversations(), await store.scan_conversations(owner=TaskId(3))]
        for conversation in range(1, newest + 1):
            id = ConversationId(conversation)
            found.append(await store.scan_entries(id, after=EntryId(2), before=EntryId(newest - 1), limit=5))
            found.append(await store.scan_entries(id, order="newest"))
            found.append(await store.latest_head(id))
            found.append(await store.latest_head(id, EntryId(newest // 2)))
            found.append(await store.task(TaskId(id)))
            found.append(await store.submission(SubmissionId(id)))
            found.append(await store.document(DocumentId(id)))
            found.append(await store.document(DocumentId(id), self.script.seq // 2))
            found.append(await store.entry(EntryId(id)))
        for id in map(ConversationId, range(1, 4)):
            found.append(await store.scan_tasks(conversation=id, kind="a"))
            found.append(await store.scan_tasks(owner=TaskId(id), background=True))
            found.append(await store.scan_tasks(waiting_on=TaskId(id), live=True))
            found.append(await store.scan_submissions(conversation=id, live=True))
            found.append(await store.submission_by_request(id, "\x00"))
        found.append(await store.scan_tasks(live=True, limit=3))
        found.append(await store.scan_deadlines(until=6))
        found.append(await store.scan_live())
        found.append(await store.scan_submissions(live=True))
        for scope in SCOPES:
            found.append(await store.scan_documents(scope, 1))
            for key in (None, "", "b", "ü"):
                found.append(await store.find_document(scope, 1, "a", key))
                found.append(await store.find_document(scope, 1, "a", key, at=self.script.seq // 2))
            found.append(await store.scan_documents(scope, 1, retired=True, cursor=2, limit=3))
            found.append(await store.scan_members(scope, 1, "a", prefix="b", after="a"))
            found.append(await store.scan_members(scope, 1, "b", after="", limit=2))
            found.append(await store.scan_members(scope, 1, "a"))
            found.append(await store.scan_members(scope, 1, "a", at=self.script.seq // 2))
            found.append(await store.scan_documents(scope, 1, kind="a", at=self.script.seq // 2))
        found.append(await store.blob("a" * 64))
        return found

    def teardown(self) -> None:
        for store in getattr(self, "stores", []):
            self.run(store.close())
        self.loop.close()
        self.folder.cleanup()


TestAgreement = pytest.mark.slow(Agreement.TestCase)
TestAgreement.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
