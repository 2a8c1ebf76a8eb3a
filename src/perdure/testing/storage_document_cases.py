"""Documents: bases and deltas, points in time, incarnations, copies."""

import msgspec

from perdure.base.ids import ConversationId
from perdure.storage.records import Document, DocumentCopy
from perdure.testing.storage_suite import Script, StorageSuite

ROOT = ConversationId(1)


class DocumentCases(StorageSuite):
    """Documents as they are read."""

    async def bodies(self, script: Script, document: Document, at: int | None = None) -> list[bytes] | None:
        """Base and deltas as read."""
        found = await script.storage.document(document.id, at)
        if found is None:
            return None
        assert found.base.base
        assert not any(one.base for one in found.deltas)
        assert all(one.document == document.id for one in (found.base, *found.deltas))
        return [found.base.body, *(one.body for one in found.deltas)]

    async def history(self, script: Script, *, rewindable: bool) -> tuple[Document, list[int]]:
        """A document with base, two deltas, base, delta; and the commits of them."""
        document = script.document(rewindable=rewindable)
        seqs = [await script.commit(documents=[document], revisions=[script.base(document, b"1")])]
        seqs.append(await script.commit(revisions=[script.delta(document, b"[2]")]))
        await script.commit()
        seqs.append(await script.commit(revisions=[script.delta(document, b"[3]", version=2)]))
        seqs.append(await script.commit(revisions=[script.base(document, b"4", version=2)]))
        seqs.append(await script.commit(revisions=[script.delta(document, b"[5]", version=2)]))
        return document, seqs

    async def test_a_rewindable_document_keeps_every_point(self, script: Script) -> None:
        document, seqs = await self.history(script, rewindable=True)
        assert await self.bodies(script, document) == [b"4", b"[5]"]
        assert await self.bodies(script, document, seqs[4]) == [b"4", b"[5]"]
        assert await self.bodies(script, document, 10**9) == [b"4", b"[5]"]
        assert await self.bodies(script, document, seqs[3]) == [b"4"]
        assert await self.bodies(script, document, seqs[2]) == [b"1", b"[2]", b"[3]"]
        assert await self.bodies(script, document, seqs[2] - 1) == [b"1", b"[2]"]
        assert await self.bodies(script, document, seqs[0]) == [b"1"]
        assert await self.bodies(script, document, seqs[0] - 1) is None

    async def test_a_current_document_has_nothing_before_its_base(self, script: Script) -> None:
        document, seqs = await self.history(script, rewindable=False)
        assert await self.bodies(script, document) == [b"4", b"[5]"]
        assert await self.bodies(script, document, seqs[3]) == [b"4"]
        assert await self.bodies(script, document, seqs[2]) is None
        assert await self.bodies(script, document, seqs[0]) is None

    async def test_revisions_carry_their_commit_and_version(self, script: Script) -> None:
        document, seqs = await self.history(script, rewindable=True)
        found = await script.storage.document(document.id, seqs[2])
        assert found is not None
        assert [(one.seq, one.version) for one in (found.base, *found.deltas)] == [
            (seqs[0], 1),
            (seqs[1], 1),
            (seqs[2], 2),
        ]

    async def test_a_document_without_a_base_has_no_value(self, script: Script) -> None:
        document = script.document()
        await script.commit(documents=[document])
        assert await self.bodies(script, document) is None
        assert list(await script.storage.scan_documents("session", 0)) == [document]

    async def test_documents_do_not_disturb_each_other(self, script: Script) -> None:
        first, second = script.document(key="a"), script.document(key="b")
        await script.commit(documents=[first, second], revisions=[script.base(first, b"1"), script.base(second, b"2")])
        await script.commit(revisions=[script.base(first, b"3"), script.delta(second, b"[4]")])
        assert await self.bodies(script, first) == [b"3"]
        assert await self.bodies(script, second) == [b"2", b"[4]"]

    async def test_scopes_kinds_and_pages(self, script: Script) -> None:
        made = [
            script.document("session", 0, kind="a"),
            script.document("conversation", 1, kind="a"),
            script.document("conversation", 1, kind="b", key="x"),
            script.document("conversation", 1, kind="b", key="y"),
            script.document("conversation", 2, kind="b", key="x"),
            script.document("task", 1, kind="a"),
        ]
        await script.commit(documents=made, revisions=[script.base(one, b"0") for one in made])
        scan = script.storage.scan_documents
        assert list(await scan("session", 0)) == made[:1]
        assert list(await scan("conversation", 1)) == made[1:4]
        assert list(await scan("conversation", 1, kind="b")) == made[2:4]
        assert list(await scan("conversation", 1, limit=2)) == made[1:3]
        assert list(await scan("conversation", 1, limit=2, cursor=made[2].id)) == made[3:4]
        assert list(await scan("conversation", 2)) == made[4:5]
        assert list(await scan("task", 1)) == made[5:]
        assert list(await scan("task", 2)) == []
        assert list(await scan("session", 0, kind="never-stored")) == []

    async def test_a_retired_document_is_found_only_at_a_point_before(self, script: Script) -> None:
        first = script.document("conversation", 1, rewindable=True)
        born = await script.commit(documents=[first], revisions=[script.base(first, b"1")])
        gone = await script.commit(documents=[msgspec.structs.replace(first, retired=script.seq + 1)])
        retired = msgspec.structs.replace(first, retired=gone)
        scan = script.storage.scan_documents
        assert list(await scan("conversation", 1)) == []
        assert list(await scan("conversation", 1, at=born - 1)) == []
        assert list(await scan("conversation", 1, at=born)) == [retired]
        assert list(await scan("conversation", 1, at=gone - 1)) == [retired]
        assert list(await scan("conversation", 1, at=gone)) == []
        assert await self.bodies(script, first, born) == [b"1"]
        again = script.document("conversation", 1, rewindable=True)
        reborn = await script.commit(documents=[again], revisions=[script.base(again, b"2")])
        assert list(await scan("conversation", 1)) == [again]
        assert list(await scan("conversation", 1, at=born)) == [retired]
        assert list(await scan("conversation", 1, at=reborn)) == [again]
        assert list(await scan("conversation", 1, retired=True)) == [retired, again]
        assert list(await scan("conversation", 1, retired=True, at=born, kind="plan", limit=1)) == [retired]
        assert list(await scan("conversation", 1, retired=True, cursor=first.id)) == [again]

    async def test_retiring_and_creating_anew_may_share_a_commit(self, script: Script) -> None:
        first = script.document()
        await script.commit(documents=[first], revisions=[script.base(first, b"1")])
        again = script.document()
        old = msgspec.structs.replace(first, retired=script.seq + 1)
        await script.commit(documents=[old, again], revisions=[script.base(again, b"2")])
        assert list(await script.storage.scan_documents("session", 0)) == [again]
        assert list(await script.storage.scan_documents("session", 0, at=script.seq)) == [again]
        assert list(await script.storage.scan_documents("session", 0, at=script.seq - 1)) == [old]

    async def test_a_document_may_begin_and_end_in_one_commit(self, script: Script) -> None:
        document = script.document()
        brief = msgspec.structs.replace(document, retired=script.seq + 1)
        await script.commit(documents=[brief], revisions=[script.base(document, b"1")])
        assert list(await script.storage.scan_documents("session", 0)) == []
        assert list(await script.storage.scan_documents("session", 0, at=script.seq)) == []

    async def test_a_copy_begins_with_the_value_at_the_point_and_goes_its_own_way(self, script: Script) -> None:
        source, seqs = await self.history(script, rewindable=True)
        early = script.document("conversation", 7, rewindable=True)
        late = script.document("conversation", 8)
        made = await script.commit(
            copies=[DocumentCopy(source.id, seqs[2], early), DocumentCopy(source.id, script.seq, late)]
        )
        assert await self.bodies(script, early) == [b"1", b"[2]", b"[3]"]
        assert await self.bodies(script, early, made) == [b"1", b"[2]", b"[3]"]
        assert await self.bodies(script, late) == [b"4", b"[5]"]
        copied = await script.storage.document(early.id)
        assert copied is not None
        assert copied.document == early
        assert [one.version for one in (copied.base, *copied.deltas)] == [1, 1, 2]
        assert all(one.seq <= made for one in (copied.base, *copied.deltas))
        await script.commit(revisions=[script.delta(early, b"[9]"), script.base(late, b"8"), script.base(source, b"7")])
        assert await self.bodies(script, early) == [b"1", b"[2]", b"[3]", b"[9]"]
        assert await self.bodies(script, early, made) == [b"1", b"[2]", b"[3]"]
        assert await self.bodies(script, late) == [b"8"]
        assert await self.bodies(script, source) == [b"7"]
        assert list(await script.storage.scan_documents("conversation", 7)) == [early]

    async def test_a_copy_may_be_changed_in_the_commit_that_makes_it(self, script: Script) -> None:
        source, _ = await self.history(script, rewindable=True)
        target = script.document("conversation", 7)
        await script.commit(
            copies=[DocumentCopy(source.id, script.seq, target)], revisions=[script.delta(target, b"[6]")]
        )
        assert await self.bodies(script, target) == [b"4", b"[5]", b"[6]"]
        assert await self.bodies(script, source) == [b"4", b"[5]"]

    async def test_a_copy_of_a_copy_keeps_the_value(self, script: Script) -> None:
        source, _ = await self.history(script, rewindable=True)
        first, second = script.document("conversation", 7, rewindable=True), script.document("conversation", 8)
        await script.commit(copies=[DocumentCopy(source.id, script.seq, first)])
        await script.commit(copies=[DocumentCopy(first.id, script.seq, second)])
        assert await self.bodies(script, second) == [b"4", b"[5]"]

    async def test_many_revisions_are_read_in_order(self, script: Script) -> None:
        document = script.document(rewindable=True)
        await script.commit(documents=[document], revisions=[script.base(document, b"0")])
        for number in range(1, 40):
            await script.commit(progress=True, revisions=[script.delta(document, b"%d" % number)])
        assert await self.bodies(script, document) == [b"%d" % number for number in range(40)]
