"""Notices to the session that started the work: rows by id and revision, each presented once.

A run without an origin (from the command line) has no notices. How they reach the session is `bridge`'s part: as
submissions whose request id is `notice_request(id, rev)`.
"""

from typing import Literal

from perdure import TaskTransaction
from perdure.subagents import rows
from perdure.subagents.paths import encoded
from perdure.subagents.state import Notice, NoticeDoc, OpenNoticeDoc, Workflow

Kind = Literal["question", "finished", "stall", "unknown", "budget", "conflict", "shared"]


def notice_id(kind: Kind, wid: str, key: str | None = None, detail: str = "") -> str:
    """Stable: what happens again to the same thing is a new revision of the same notice."""
    return ":".join(part for part in (wid, key, kind, detail) if part)


def notice_request(notice: Notice) -> str:
    """Under what request id a revision is submitted in its session."""
    return f"notice:{notice.id}@{notice.rev}"


async def put_notice(
    tx: TaskTransaction, workflow: Workflow, kind: Kind, text: str, *, key: str | None = None, detail: str = ""
) -> Notice | None:
    """Open a notice in this commit, or its next revision if it was there. None for a run without an origin.

    `detail` tells apart what can be open side by side: a question's id, a generation, a pair of calls.
    """
    if workflow.origin is None:
        return None
    id = notice_id(kind, workflow.wid, key, detail)
    notice = await rows.read(tx, NoticeDoc, id)
    if notice is None:
        notice = Notice(id=id, rev=0, kind=kind, session=workflow.origin, wid=workflow.wid, key=key)
    notice.rev += 1
    notice.text, notice.at, notice.resolved = text, tx.now_millis / 1000, None
    await _store(tx, notice)
    return notice


async def resolve_notices(
    tx: TaskTransaction,
    wid: str,
    how: str,
    *,
    key: str | None = None,
    kinds: tuple[Kind, ...] | None = None,
    detail: str | None = None,
) -> list[str]:
    """Settle the open notices of a workflow, or of one of its calls; returns their ids. Repeating it adds nothing.

    One that its session has not been shown is withdrawn: what is settled is never presented as open.
    """
    found = []
    for notice in await rows.rows(tx, NoticeDoc, f"{wid}:"):
        if notice.resolved is not None or (key is not None and notice.key != key):
            continue
        if kinds is not None and notice.kind not in kinds:
            continue
        if detail is not None and notice.id != notice_id(notice.kind, wid, notice.key, detail):
            continue
        notice.resolved, notice.presented = how, notice.rev
        await _store(tx, notice)
        found.append(notice.id)
    return found


async def presented(tx: TaskTransaction, id: str, rev: int) -> None:
    """Its session has stored this revision. Repeating it changes nothing; a finished work is settled by it."""
    notice = await rows.read(tx, NoticeDoc, id)
    if notice is not None and notice.presented < rev <= notice.rev:
        notice.presented = rev
        if notice.kind == "finished" and rev == notice.rev:
            notice.resolved = "presented"
        await _store(tx, notice)


def open_key(notice: Notice) -> str:
    """Where it is listed while its session has not taken it."""
    return f"{encoded(notice.session)}/{notice.id}"


async def open_notices(reader: rows.Reader, session: str) -> list[Notice]:
    """What a session has not been shown, or was shown and is not settled; the oldest first."""
    prefix = f"{encoded(session)}/"
    ids = [key.removeprefix(prefix) for key in await rows.keys(reader, OpenNoticeDoc, prefix)]
    found = [await rows.read(reader, NoticeDoc, id) for id in ids]
    return sorted((notice for notice in found if notice is not None), key=lambda notice: notice.at)


async def _store(tx: TaskTransaction, notice: Notice) -> None:
    await rows.write(tx, NoticeDoc, notice.id, notice)
    key = open_key(notice)
    if notice.resolved is None or notice.presented < notice.rev:
        await rows.write(tx, OpenNoticeDoc, key, {})
    else:
        await tx.retire(OpenNoticeDoc, key=key)
