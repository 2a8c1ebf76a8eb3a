"""The event log and the notices, as rows of a session."""

from collections.abc import AsyncIterator

import pytest

from perdure import Harness, InvalidValue
from perdure.subagents import events, notices, rows
from perdure.subagents.state import Call, NoticeDoc, Workflow


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    async with Harness.open("memory:") as opened:
        yield opened


def a_workflow(wid: str = "w1", origin: str | None = "s1") -> Workflow:
    return Workflow(
        wid=wid, request="job", sender="cli:me@here", form="single", cwd="/", created=0.0, digest="d", origin=origin,
        labels={"issue": "7"},
    )  # fmt: skip


async def log(harness: Harness, count: int) -> list[str]:
    found = []
    for number in range(count):
        async with harness.session.transaction() as tx:
            found.append(await events.append_event(tx, "submitted", workflow=a_workflow(), number=number))
    return found


async def test_r351_an_event_has_id_cursor_time_type_and_what_its_run_is_known_by(harness: Harness) -> None:
    call = Call(wid="w1", key="tasks:0", agent="worker", spec={}, fingerprint="f", generation=2)
    async with harness.session.transaction() as tx:
        await events.append_event(tx, "started", workflow=a_workflow(), call=call)
    (event,) = (await events.after(harness.session, (await events.head(harness.session)).split(".")[0] + ".0")).events
    assert (event.type, event.wid, event.request, event.labels) == ("started", "w1", "job", {"issue": "7"})
    assert (event.key, event.gen, event.call) == ("tasks:0", 2, "w1/tasks:0@2")
    assert event.cursor == await events.head(harness.session)
    assert event.at > 0


async def test_r352_pages_after_any_cursor_join_to_the_whole_log(harness: Harness) -> None:
    cursors = await log(harness, 25)
    start = cursors[0].split(".")[0] + ".0"
    for first in [start, *cursors]:
        cursor, found, more = first, [], True
        while more:
            page = await events.after(harness.session, cursor, limit=4)
            found += [event.cursor for event in page.events]
            assert not page.more or page.head == found[-1]
            cursor, more = page.head, page.more
        assert found == cursors[cursors.index(first) + 1 if first in cursors else 0 :]
        assert cursor == cursors[-1]


async def test_r353_a_block_that_fails_logs_nothing_and_its_number_is_given_to_the_next(harness: Harness) -> None:
    await log(harness, 1)

    async def failing() -> None:
        async with harness.session.transaction() as tx:
            await events.append_event(tx, "submitted", workflow=a_workflow())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await failing()
    (cursor,) = await log(harness, 1)
    assert cursor.endswith(".2")


@pytest.mark.parametrize("cursor", ["", "7", "a.", ".5", "a.-1", "a.1.2", "a.one", "a.²", "a." + "9" * 30])
async def test_r356_a_malformed_cursor_is_an_error_of_its_own(harness: Harness, cursor: str) -> None:
    await log(harness, 2)
    with pytest.raises(InvalidValue):
        await events.after(harness.session, cursor)


async def test_r356_a_cursor_of_another_epoch_or_beyond_the_head_has_expired(harness: Harness) -> None:
    newest = (await log(harness, 2))[-1]
    epoch = newest.split(".")[0]
    for cursor in ("ffff.1", f"{epoch}.3"):
        with pytest.raises(events.CursorExpired) as raised:
            await events.after(harness.session, cursor)
        assert (raised.value.head, raised.value.oldest) == (newest, f"{epoch}.0")


async def test_r336_a_run_without_an_origin_has_no_notices(harness: Harness) -> None:
    async with harness.session.transaction() as tx:
        assert await notices.put_notice(tx, a_workflow(origin=None), "finished", "done") is None
    assert await rows.keys(harness.session, NoticeDoc) == []


async def test_r331_each_revision_is_open_until_it_was_presented_and_settled(harness: Harness) -> None:
    async with harness.session.transaction() as tx:
        await notices.put_notice(tx, a_workflow(), "question", "Which?", key="a", detail="q1")
        await notices.put_notice(tx, a_workflow(), "question", "Which?", key="a", detail="q1")
    (open_one,) = await notices.open_notices(harness.session, "s1")
    assert (open_one.id, open_one.rev) == ("w1:a:question:q1", 2)
    assert await notices.open_notices(harness.session, "s2") == []
    async with harness.session.transaction() as tx:
        await notices.presented(tx, open_one.id, 2)
    assert len(await notices.open_notices(harness.session, "s1")) == 1, "shown, and not answered"
    async with harness.session.transaction() as tx:
        assert await notices.resolve_notices(tx, "w1", "answered", key="a", kinds=("question",)) == [open_one.id]
        assert await notices.resolve_notices(tx, "w1", "answered", key="a") == [], "once"
    assert await notices.open_notices(harness.session, "s1") == []


async def test_r182_what_was_settled_before_it_was_shown_is_withdrawn(harness: Harness) -> None:
    async with harness.session.transaction() as tx:
        await notices.put_notice(tx, a_workflow(), "question", "Which?", key="a", detail="q1")
        await notices.resolve_notices(tx, "w1", "answered")
    assert await notices.open_notices(harness.session, "s1") == []


async def test_a_finished_notice_is_settled_by_being_presented(harness: Harness) -> None:
    async with harness.session.transaction() as tx:
        notice = await notices.put_notice(tx, a_workflow(), "finished", "done")
        assert notice is not None
    async with harness.session.transaction() as tx:
        await notices.presented(tx, notice.id, notice.rev)
    assert await notices.open_notices(harness.session, "s1") == []
