"""Documents: scopes, drafts, whole values, patches, what is stored, versions."""

from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.base import jsonvalue
from perdure.base.errors import Error, InvalidDefinition, InvalidValue, NotFound, TooNew
from perdure.base.ids import ROOT
from perdure.session.documents import DELTAS_PER_BASE, SMALL_VALUE_BYTES, Document
from perdure.session.store import Store
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import Revision
from tests.base.values import values
from tests.session.kit import (
    Current,
    Fresh,
    Global,
    Here,
    Loose,
    Member,
    Place,
    Plain,
    Plan,
    Trip,
    add_stop,
    empty_plan,
    opened,
    publications,
)

OfTask: Document[Any] = Document("trip.task", dict[str, Any], scope="task", initial=dict)
BIG = "x" * (SMALL_VALUE_BYTES + 1)


async def rows(session: Plain, kind: Document[Any], scope_id: int = ROOT) -> list[Revision]:
    """What is stored of a document: its newest base and the deltas behind it."""
    (record,) = await session.storage.scan_documents(kind.scope, scope_id, kind=kind.kind)
    stored = await session.storage.document(record.id)
    assert stored is not None
    return [stored.base, *stored.deltas]


async def reread(session: Plain, kind: Document[Any], scope_id: int | None = ROOT) -> Any:
    """The value as another process finds it."""
    state = await Store(session.storage, session._wait_flushed).document(session.store.key_of(kind, scope_id, None))
    return None if state is None else state.value


async def test_each_scope_has_documents_of_its_own() -> None:
    session = await opened()
    async with session.transaction() as tx:
        other = tx.put_conversation(owner=None)
        (await tx.doc(Fresh, ROOT))["stops"].append("root")
        (await tx.doc(Fresh, other))["stops"].append("other")
        (await tx.doc(Global))["stops"].append("all")
    assert await session.snapshot(Fresh, ROOT) == {"stops": ["root"]}
    assert await session.snapshot(Fresh, other) == {"stops": ["other"]}
    assert await session.snapshot(Global) == {"stops": ["all"]}


async def test_the_id_must_fit_the_scope() -> None:
    session = await opened()
    async with session.transaction() as tx:
        for wrong in (
            tx.doc(Fresh),
            tx.doc(Global, 5),
            tx.doc(Fresh, ROOT, key="x"),
            tx.doc(Member, ROOT),
            tx.doc(Fresh, 999),
            tx.doc(OfTask, 999),
        ):
            with pytest.raises((InvalidValue, NotFound)):
                await wrong
    assert await session.snapshot(Global) is None


async def test_a_family_has_members_under_keys_each_with_its_seed() -> None:
    session = await opened()
    async with session.transaction() as tx:
        await tx.doc(Member, ROOT, key="a", seed=Plan(stops=["A"]))
        await tx.doc(Member, ROOT, key="b", seed=Plan(stops=["B"]))
    async with session.transaction() as tx:
        plan = await tx.doc(Member, ROOT, key="a", seed=Plan(stops=["ignored"]))
        assert list(plan["stops"]) == ["A"]
        await tx.retire(Member, ROOT, key="b")
    assert await session.snapshot(Member, ROOT, key="a") == {"stops": ["A"]}
    assert await session.snapshot(Member, ROOT, key="b") is None
    assert await session.snapshot(Member, ROOT, key="c") is None


async def test_a_draft_a_whole_value_and_patches_follow_each_other_in_one_block() -> None:
    session = await opened()
    await add_stop(session, Fresh, "Wien")
    async with session.transaction() as tx:
        early = await tx.doc(Fresh, ROOT)
        early["stops"].append("Linz")
        await tx.patch(Fresh, ROOT, [{"op": "append", "path": "/stops/1", "value": "!"}])
        with pytest.raises(Error):
            early["stops"].append("lost")
        await tx.set(Fresh, ROOT, Plan(stops=["Graz", "Linz!"]))
        late = await tx.doc(Fresh, ROOT)
        assert late is await tx.doc(Fresh, ROOT)
        late["stops"].append("Ulm")
    assert await session.snapshot(Fresh, ROOT) == {"stops": ["Graz", "Linz!", "Ulm"]}
    assert await reread(session, Fresh) == {"stops": ["Graz", "Linz!", "Ulm"]}


async def test_a_value_that_is_no_object_changes_by_set_and_its_difference_is_stored() -> None:
    session = await opened()
    async with session.transaction() as tx:
        await tx.set(Here, ROOT, Place(BIG))
    async with session.transaction() as tx:
        await tx.set(Here, ROOT, Place(BIG, 2))
    base, delta = await rows(session, Here)
    assert base.base
    assert jsonvalue.decode(delta.body) == [{"op": "replace", "path": "/size", "value": 2}]
    assert await session.snapshot(Here, ROOT) == Place(BIG, 2)
    text: Document[str] = Document("t", str, initial=str)
    async with session.transaction() as tx:
        with pytest.raises(InvalidValue, match="set"):
            await tx.doc(text, ROOT)


@settings(max_examples=10)
@given(
    st.dictionaries(st.text(max_size=3), values, max_size=4), st.dictionaries(st.text(max_size=3), values, max_size=4)
)
async def test_set_leaves_what_a_reopen_gives_down_to_the_order_of_keys(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    session = await opened()
    always: Document[Any] = Document("d", dict[str, Any], history="rewindable")
    for value in (old, new):
        async with session.transaction() as tx:
            await tx.set(always, ROOT, value)
    kept = await session.snapshot(always, ROOT)
    assert jsonvalue.encode(kept) == jsonvalue.encode(await reread(session, always))
    assert jsonvalue.canonical(kept) == jsonvalue.canonical(new)


async def test_growing_text_costs_what_was_added() -> None:
    session = await opened()
    async with session.transaction() as tx:
        (await tx.doc(Loose, ROOT))["text"] = BIG
    async with session.transaction() as tx:
        (await tx.doc(Loose, ROOT))["text"] += "more"
    assert jsonvalue.decode((await rows(session, Loose))[-1].body) == [
        {"op": "append", "path": "/text", "value": "more"}
    ]


async def test_a_small_latest_value_is_stored_whole_and_a_rewindable_one_by_deltas() -> None:
    session = await opened()
    for stop in "abc":
        await add_stop(session, Fresh, stop)
        await add_stop(session, Trip, stop)
    assert [row.base for row in await rows(session, Fresh)] == [True]
    assert [row.base for row in await rows(session, Trip)] == [True, False, False]


@pytest.mark.parametrize("kind", [Trip, Loose])
async def test_after_64_deltas_a_whole_value_is_stored(kind: Document[Any]) -> None:
    session = await opened()
    async with session.transaction() as tx:
        await tx.set(kind, ROOT, Plan(stops=[BIG]))
    for number in range(DELTAS_PER_BASE - 1):
        await add_stop(session, kind, str(number))
    assert len(await rows(session, kind)) == DELTAS_PER_BASE
    await add_stop(session, kind, "last")
    assert [row.base for row in await rows(session, kind)] == [True]
    await add_stop(session, kind, "next")
    assert [row.base for row in await rows(session, kind)] == [True, False]
    assert await reread(session, kind) == await session.snapshot(kind, ROOT)


async def test_the_count_of_deltas_survives_a_reopen() -> None:
    storage = MemoryStorage()
    session = await opened(storage)
    async with session.transaction() as tx:
        await tx.set(Trip, ROOT, Plan(stops=[BIG]))
    for number in range(40):
        await add_stop(session, Trip, str(number))
    await session.close()
    session = await opened(storage)
    for number in range(24):
        await add_stop(session, Trip, str(number))
    assert [row.base for row in await rows(session, Trip)] == [True]


async def test_a_definition_can_say_when_a_whole_value_is_stored() -> None:
    asked: list[int] = []

    def every_third(value: Any, ops: list[dict[str, Any]], deltas: int) -> bool:
        asked.append(deltas)
        return deltas == 3

    kind: Document[Any] = Document("d", dict[str, Any], history="rewindable", initial=dict, checkpoint_when=every_third)
    session = await opened()
    for number in range(5):
        async with session.transaction() as tx:
            (await tx.doc(kind, ROOT))[str(number)] = number
    assert asked == [1, 2, 3, 1]
    assert [row.base for row in await rows(session, kind)] == [True, False]


BAD: list[tuple[Any, str]] = [
    (float("nan"), "/a"),
    (b"x", "/a"),
    ({1}, "/a"),
    ({1: 2}, "/a"),
    ([{"deep": float("inf")}], "/a/0/deep"),
    (2**53, "/a"),
    ("\ud800", "/a"),
    (object(), "/a"),
]


@pytest.mark.parametrize(("value", "path"), BAD)
@pytest.mark.parametrize("how", ["draft", "set", "patch"])
async def test_what_is_no_strict_json_is_refused_with_its_path(value: Any, path: str, how: str) -> None:
    session = await opened()
    async with session.transaction() as tx:
        await tx.doc(Loose, ROOT)
    before = session.seq
    with pytest.raises(InvalidValue) as refused:  # noqa: PT012
        async with session.transaction() as tx:
            if how == "draft":
                (await tx.doc(Loose, ROOT))["a"] = value
            elif how == "set":
                await tx.set(Loose, ROOT, {"a": value})
            else:
                await tx.patch(Loose, ROOT, [{"op": "add", "path": "/a", "value": value}])
    assert refused.value.path.startswith(path)
    assert session.seq == before
    assert await session.snapshot(Loose, ROOT) == {}


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda plan: plan["stops"].append(5), "/stops/0"),
        (lambda plan: plan.update(other=1), "/other"),
        (lambda plan: plan.pop("stops"), "/"),
    ],
)
async def test_the_end_of_the_block_checks_the_type_without_converting(edit: Any, path: str) -> None:
    session = await opened()
    with pytest.raises(InvalidValue) as refused:
        async with session.transaction() as tx:
            edit(await tx.doc(Fresh, ROOT))
    assert path in f"{refused.value.path}/"
    assert await session.snapshot(Fresh, ROOT) is None


class Split(TypedDict):
    """What plans look like in version 3."""

    names: list[str]


def migrated(value: Any, from_version: int) -> Split:
    return {"names": [f"{from_version}:{stop}" for stop in value["stops"]]}


async def test_reads_migrate_in_memory_and_the_next_write_stores_a_base() -> None:
    session = await opened()
    await add_stop(session, Trip, "Wien")
    await add_stop(session, Trip, "Linz")
    newer: Document[Split] = Document("trip.plan", Split, 3, history="rewindable", fork="as_of", migrate=migrated)
    seq = session.seq
    assert await session.snapshot(newer, ROOT) == {"names": ["1:Wien", "1:Linz"]}
    async with session.transaction() as tx:
        assert await tx.doc(newer, ROOT) == {"names": ["1:Wien", "1:Linz"]}
    assert session.seq == seq, "a read stores nothing"
    async with session.transaction() as tx:
        (await tx.doc(newer, ROOT))["names"].append("Ulm")
    (base,) = await rows(session, newer)
    assert (base.base, base.version) == (True, 3)
    assert await session.snapshot(newer, ROOT) == {"names": ["1:Wien", "1:Linz", "Ulm"]}
    with pytest.raises(TooNew, match="version 3"):
        await session.snapshot(Trip, ROOT)
    with pytest.raises(TooNew):
        await add_stop(session, Trip, "no")
    assert (await rows(session, newer)) == [base]


async def test_an_older_value_without_a_migration_or_with_a_bad_one_is_refused() -> None:
    session = await opened()
    await add_stop(session, Current, "Wien")
    with pytest.raises(InvalidDefinition, match="migrate"):
        await session.snapshot(Document("trip.current", Split, 2), ROOT)
    broken: Document[Any] = Document("trip.current", Split, 2, migrate=lambda value, version: {"names": [5]})
    with pytest.raises(InvalidValue):
        await session.snapshot(broken, ROOT)
    assert await session.snapshot(Current, ROOT) == {"stops": ["Wien"]}


async def test_a_retired_document_is_gone_and_a_new_one_begins_afresh() -> None:
    storage = MemoryStorage()
    session = await opened(storage)
    await add_stop(session, Trip, "Wien")
    async with session.transaction() as tx:
        assert await tx.retire(Trip, ROOT)
        assert not await tx.retire(Trip, ROOT)
        assert await tx.snapshot(Trip, ROOT) is None
        assert await tx.documents_alive("conversation", ROOT) == []
    assert await session.snapshot(Trip, ROOT) is None
    await add_stop(session, Trip, "Ulm")
    assert await session.snapshot(Trip, ROOT) == {"stops": ["Ulm"]}
    await session.close()
    assert await (await opened(storage)).snapshot(Trip, ROOT) == {"stops": ["Ulm"]}


async def test_a_document_can_be_retired_and_begun_anew_in_one_block() -> None:
    storage = MemoryStorage()
    session = await opened(storage)
    await add_stop(session, Trip, "Wien")
    seen = publications(session)
    async with session.transaction() as tx:
        await tx.retire(Trip, ROOT)
        assert await tx.doc(Trip, ROOT) == empty_plan()
        assert await tx.retire(Trip, ROOT), "the one begun in this block"
        (await tx.doc(Trip, ROOT))["stops"].append("Ulm")
    assert [change.retired for change in seen[0].documents] == [True, False]
    assert await session.snapshot(Trip, ROOT) == {"stops": ["Ulm"]}
    await session.close()
    assert await (await opened(storage)).snapshot(Trip, ROOT) == {"stops": ["Ulm"]}


def test_a_definition_that_could_not_work_is_refused() -> None:
    for wrong in (
        {"fork": "as_of"},
        {"scope": "session", "fork": "current"},
        {"version": 0},
        {"kind": ""},
        {"kind": "a/b"},
    ):
        with pytest.raises(InvalidDefinition):
            Document(**{"kind": "d", "type": dict, **wrong})  # type: ignore[call-overload]
