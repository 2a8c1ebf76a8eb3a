"""Families: members found by key, by the beginning of their keys, and as of a commit."""

import msgspec

from perdure.testing.storage_suite import Script, StorageSuite


class FamilyCases(StorageSuite):
    """Members of families as they are found."""

    async def test_members_are_found_by_key_and_by_the_beginning_of_their_keys(self, script: Script) -> None:
        keys = ["b", "a/2", "a/1", "a", "a/\U0010ffff", "\U0010ffff", "Ä", "a\x00", "日本", "a0"]
        made = {key: script.document("conversation", 1, kind="f", key=key) for key in keys}
        alone = script.document("conversation", 1, kind="f")
        others = [script.document("conversation", 2, kind="f", key="a"), script.document("task", 1, kind="f", key="a")]
        records = [*made.values(), alone, *others, script.document("conversation", 1, kind="g", key="a")]
        await script.commit(documents=records, revisions=[script.base(one, b"0") for one in records])
        scan, find = script.storage.scan_members, script.storage.find_document
        assert [one.key for one in await scan("conversation", 1, "f")] == sorted(keys)
        for prefix in ("", "a", "a/", "a/1", "\U0010ffff", "日", "none"):
            matching = sorted(key for key in keys if key.startswith(prefix))
            assert [one.key for one in await scan("conversation", 1, "f", prefix=prefix)] == matching
            paged: list[str | None] = []
            while page := await scan(
                "conversation", 1, "f", prefix=prefix, after=paged[-1] if paged else None, limit=2
            ):
                paged += [one.key for one in page]
            assert paged == matching
        assert [one.key for one in await scan("conversation", 1, "f", prefix="a/", after="0")] == sorted(
            key for key in keys if key.startswith("a/")
        )
        assert list(await scan("conversation", 1, "f", prefix="a/", after="b")) == []
        assert list(await scan("conversation", 1, "never-stored")) == []
        assert await find("conversation", 1, "f", "a/2") == made["a/2"]
        assert await find("conversation", 1, "f", None) == alone
        assert await find("conversation", 1, "f", "a/") is None
        assert await find("conversation", 3, "f", "a") is None
        assert await find("conversation", 1, "never-stored", None) is None

    async def test_members_are_found_as_of_a_commit(self, script: Script) -> None:
        first = script.document("conversation", 1, kind="f", key="k")
        born = await script.commit(documents=[first], revisions=[script.base(first, b"1")])
        again = script.document("conversation", 1, kind="f", key="k")
        old = msgspec.structs.replace(first, retired=script.seq + 1)
        reborn = await script.commit(documents=[old, again], revisions=[script.base(again, b"2")])
        gone = await script.commit(documents=[msgspec.structs.replace(again, retired=script.seq + 1)])
        scan, find = script.storage.scan_members, script.storage.find_document
        points: tuple[tuple[int | None, int | None], ...] = (
            (born - 1, None),
            (born, first.id),
            (reborn - 1, first.id),
            (reborn, again.id),
            (gone - 1, again.id),
            (gone, None),
            (None, None),
        )
        for at, id in points:
            assert [one.id for one in await scan("conversation", 1, "f", at=at)] == [id] * (id is not None)
            found = await find("conversation", 1, "f", "k", at=at)
            assert (found and found.id) == id
