"""Admitting submissions: once per request id, into the transcript or into the inbox."""

from typing import Any, Final, Literal

import msgspec

from perdure.agent.documents import InboxDoc, LiveDoc
from perdure.agent.entries import UserEntry, put
from perdure.base import jsonvalue
from perdure.base.digest import sha256
from perdure.base.errors import Busy, InvalidValue, RequestConflict
from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.extensions.settled import Settled
from perdure.models.messages import Attachment, Content, Text, UserMessage, decode_messages
from perdure.session.entries import encode_entry
from perdure.storage.records import Submission
from perdure.tasks.signals import check_key
from perdure.tasks.transaction import TaskTransaction

WhenBusy = Literal["follow_up", "steer", "reject"]
REQUEST_ID_LENGTH: Final = 200
"""Characters of a request id at most."""

_content_decoder = msgspec.json.Decoder(str | list[Content])


class Draft(msgspec.Struct, frozen=True):
    """A submission, checked and encoded, before it is admitted."""

    kind: Literal["input", "write"]
    content: bytes
    digest: bytes
    request_id: str | None
    when_busy: WhenBusy
    notify: tuple[TaskId, str] | None


def input_draft(
    content: str | list[Any],
    *,
    request_id: str | None = None,
    when_busy: WhenBusy = "follow_up",
    notify: tuple[TaskId, str] | None = None,
) -> Draft:
    """An input, checked: text or a list of text and attachment blocks."""
    if when_busy not in ("follow_up", "steer", "reject"):
        raise InvalidValue(f'when_busy is "follow_up", "steer" or "reject", not {when_busy!r}')
    plain = [_plain(block) for block in content] if isinstance(content, list | tuple) else content
    jsonvalue.check(plain)
    encoded = jsonvalue.encode(plain)
    try:
        decoded = _content_decoder.decode(encoded)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"an input is text, or a list of text and attachment blocks: {error}") from error
    if not decoded:
        raise InvalidValue("an input cannot be empty")
    _check_notify(notify)
    return _draft("input", encoded, plain, request_id, when_busy, notify)


def _plain(block: Any) -> Any:
    """A block as the object it is stored as. Only its own fields are opened: an encoder would turn bytes that somebody
    put into one into text, and go down without a bound."""
    if not isinstance(block, Text | Attachment):
        return block
    fields = {name: value for name in block.__struct_fields__ if (value := getattr(block, name)) is not None}
    return {"type": block.__struct_config__.tag, **fields}


def write_draft(entry: Any, *, request_id: str | None = None, head: EntryId | Literal[True] | None = None) -> Draft:
    """A passive entry that joins the transcript at the next boundary."""
    kind, messages, data = encode_entry(entry)
    try:
        decode_messages(messages)
    except msgspec.MsgspecError as error:
        raise InvalidValue(f"the entry does not give messages: {error}", hint="see to_model()") from error
    _check_head(head)
    content = {
        "kind": kind.kind,
        "version": kind.version,
        "messages": jsonvalue.decode(messages),
        "data": jsonvalue.decode(data),
        "head": head,
    }
    return checked_write(content, request_id)


def checked_write(content: dict[str, Any], request_id: str | None = None) -> Draft:
    """A passive entry whose kind, version, messages, data and head are sound."""
    return _draft("write", jsonvalue.encode(content), content, request_id, "follow_up", None)


def _check_head(head: Any) -> None:
    if head is None or head is True or (type(head) is int and head > 0):
        return
    raise InvalidValue(f"head is the id of an entry, True for the entry itself, or None, not {head!r}")


def _draft(
    kind: Literal["input", "write"],
    encoded: bytes,
    content: Any,
    request_id: str | None,
    when_busy: WhenBusy,
    notify: tuple[TaskId, str] | None,
) -> Draft:
    if request_id is not None:
        _check_request_id(request_id)
    subject = {"kind": kind, "content": content, "notify": list(notify) if notify else None}
    digest = sha256(jsonvalue.canonical(subject))
    return Draft(kind, encoded, digest, request_id, when_busy, notify)


def _check_notify(notify: Any) -> None:
    if notify is None:
        return
    if not isinstance(notify, tuple | list) or len(notify) != 2 or type(notify[0]) is not int:
        raise InvalidValue(f"notify is a pair of a task's id and a key, not {notify!r}")
    check_key(notify[1])


def _check_request_id(request_id: Any) -> None:
    if not isinstance(request_id, str) or not 0 < len(request_id) <= REQUEST_ID_LENGTH or not request_id.isprintable():
        raise InvalidValue(
            "a request id is 1 to 200 printable characters", hint="any text of your own that names this one request"
        )


async def admit(tx: TaskTransaction, conversation: ConversationId, draft: Draft) -> tuple[Submission, bool]:
    """Store a submission as queued, or find the one its request id stands for. True: it is new.

    Raises `RequestConflict` when the id was used with other content, `Busy` when the caller wanted no waiting.
    """
    await tx.conversation(conversation)
    if draft.request_id is not None:
        known = await tx.submission_by_request(conversation, draft.request_id)
        if known is not None:
            if known.digest != draft.digest:
                raise RequestConflict(
                    f"request id {draft.request_id!r} was used with other content in conversation {conversation}",
                    hint="use a new request id for a new request",
                )
            return known, False
    if draft.when_busy == "reject" and await is_busy(tx, conversation):
        raise Busy(f"conversation {conversation} is busy", hint="submit with when_busy='steer' or 'follow_up'")
    notify_task, notify_key = draft.notify or (None, None)
    submission = Submission(
        SubmissionId(tx.mint()),
        conversation,
        "queued",
        draft.kind,
        draft.content,
        draft.digest,
        request_id=draft.request_id,
        when_busy=draft.when_busy,
        notify_task=notify_task,
        notify_key=notify_key,
    )
    tx.put_submission(submission)
    return submission, True


async def is_busy(tx: TaskTransaction, conversation: ConversationId) -> bool:
    """Whether a run is open."""
    live: Any = await tx.value_of(LiveDoc, conversation)
    return live is not None and live["run"] is not None


async def queued_items(tx: TaskTransaction, conversation: ConversationId) -> list[dict[str, Any]]:
    """What waits in the inbox, in order."""
    inbox: Any = await tx.value_of(InboxDoc, conversation)
    return inbox["items"] if inbox is not None else []


async def enqueue(
    tx: TaskTransaction, conversation: ConversationId, submission: Submission, *, after_abort: bool = False
) -> None:
    """Put a submission at the end of the inbox. `after_abort`: it came while the open run was being stopped."""
    how = "write" if submission.kind == "write" else submission.when_busy
    item = {"submission": submission.id, "how": how, **({"after_abort": True} if after_abort else {})}
    await tx.patch(InboxDoc, conversation, [{"op": "add", "path": "/items/-", "value": item}])


async def dequeue(tx: TaskTransaction, conversation: ConversationId, ids: set[int]) -> None:
    """Take submissions out of the inbox; they are placed or settled in the same commit."""
    items = await queued_items(tx, conversation)
    ops = [
        {"op": "remove", "path": f"/items/{position}"}
        for position, item in reversed(list(enumerate(items)))
        if item["submission"] in ids
    ]
    if ops:
        await tx.patch(InboxDoc, conversation, ops)


def place(tx: TaskTransaction, submission: Submission) -> EntryId:
    """Put an input into the transcript."""
    message = UserMessage(_content_decoder.decode(submission.content))
    entry = put(tx, submission.conversation, UserEntry, message, data={"submission": submission.id})
    tx.put_submission(msgspec.structs.replace(submission, status="placed", entry=entry))
    return entry


def place_write(tx: TaskTransaction, submission: Submission, current_head: EntryId | None) -> EntryId | None:
    """Put a passive entry into the transcript and settle it; one whose head lies behind the range is stale."""
    content: Any = jsonvalue.decode(submission.content)
    head = content["head"]
    if head is not None and head is not True and current_head is not None and head < current_head:
        settle(tx, submission, Settled("unanswered", reason="stale", detail="its head lies before the current range"))
        return None
    entry = tx.put_entry(
        submission.conversation,
        content["kind"],
        version=content["version"],
        messages=jsonvalue.encode(content["messages"]),
        data=jsonvalue.encode(content["data"]),
        head=head,
    )
    settle(tx, msgspec.structs.replace(submission, entry=entry), Settled("done", answer=entry))
    return entry


def settle(tx: TaskTransaction, submission: Submission, settled: Settled) -> None:
    """End a submission. What has ended stays as it is."""
    if submission.status in ("done", "unanswered"):
        return
    tx.put_submission(
        msgspec.structs.replace(
            submission,
            status=settled.status,
            answer=settled.answer,
            reason=settled.reason,
            detail=settled.detail,
        )
    )


def settled_of(submission: Submission) -> Settled | None:
    """How a submission ended; None while it is open."""
    if submission.status not in ("done", "unanswered"):
        return None
    return Settled(submission.status, submission.answer, submission.reason, submission.detail)
