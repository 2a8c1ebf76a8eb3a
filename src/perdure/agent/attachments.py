"""The files of conversations: bytes stored once by their content, and never referred to before they are there."""

from typing import Any, Final

import msgspec

from perdure.base.digest import sha256
from perdure.base.errors import InvalidValue
from perdure.models.messages import AssistantMessage, Attachment, Content, Message, Said, SystemMessage, decode_messages
from perdure.session.transaction import Transaction
from perdure.storage.records import Blob

FILE_BYTES: Final = 32 * 1024 * 1024
"""Bytes of one attachment: what the most generous provider takes as a whole request."""

KNOWN_DIGESTS: Final = 4096
"""Digests remembered as stored, so that a conversation that shows a file again need not read it to know."""

_MARK: Final = b'"type":"attachment"'

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class _Write(msgspec.Struct):
    messages: list[Message]


_content_decoder = msgspec.json.Decoder(str | list[Content])
_write_decoder = msgspec.json.Decoder(_Write)


class Attachments:
    """A session's attachments. Remembers which it has seen stored."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._stored: dict[str, None] = {}

    async def keep(self, content: bytes, media_type: str | None, name: str | None) -> Attachment:
        """Store the bytes in a commit of its own, unless they are stored already."""
        attachment = described(content, media_type, name)
        if not await self.has(attachment.digest):
            async with self._session.transaction() as tx:
                tx.put_blob(Blob(attachment.digest, attachment.media_type, bytes(content)))
        return attachment

    async def has(self, digest: str) -> bool:
        """Whether the bytes are stored."""
        if digest not in self._stored:
            if await self.read(digest) is None:
                return False
            if len(self._stored) >= KNOWN_DIGESTS:
                self._stored.clear()
            self._stored[digest] = None
        return True

    async def read(self, digest: str) -> bytes | None:
        """The bytes, or None."""
        blob: Blob | None = await (await self._session.store.settled()).blob(digest)
        return None if blob is None else blob.content

    async def check(self, tx: Transaction) -> None:
        """A rule of every commit: what it refers to is stored, or comes with it. Raises `InvalidValue`."""
        changes = tx.changes
        if changes.entries:
            for entry in changes.entries.values():
                if _MARK in entry.messages:
                    await self._check_messages(tx, decode_messages(entry.messages))
        if changes.submissions:  # already where it is queued: where it is placed, an error would be the run's
            for submission in changes.submissions.values():
                if submission.status != "queued" or _MARK not in submission.content:
                    continue
                if submission.kind == "input":
                    await self._check_content(tx, _content_decoder.decode(submission.content))
                else:
                    written = _write_decoder.decode(submission.content)
                    await self._check_messages(tx, written.messages)

    async def _check_messages(self, tx: Transaction, messages: list[Message]) -> None:
        for message in messages:
            if not isinstance(message, SystemMessage):
                await self._check_content(tx, message.content)

    async def _check_content(self, tx: Transaction, content: str | list[Said] | list[Content]) -> None:
        for digest in _digests(content):
            if digest not in tx.changes.blobs and not await self.has(digest):
                raise missing(digest)

    async def first_missing(self, content: str | list[Content]) -> str | None:
        """The first digest of a content whose bytes are not stored."""
        for digest in _digests(content):
            if not await self.has(digest):
                return digest
        return None


def described(content: bytes, media_type: str | None = None, name: str | None = None) -> Attachment:
    """The attachment that stands for the bytes. Without a media type it is told from the bytes.

    An image whose bytes say something else than its media type is stored as what it is: providers refuse the mismatch,
    and the conversation with it. Raises `InvalidValue` for what is empty, too large, or cannot be told.
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidValue(f"an attachment is bytes, not {type(content).__name__}", hint="read the file first")
    data = bytes(content)
    if not 0 < len(data) <= FILE_BYTES:
        raise InvalidValue(f"an attachment has 1 to {FILE_BYTES:,} bytes, not {len(data):,}")
    found = _told(data)
    pictured = (media_type or "").lower().startswith("image/") and (found or "").startswith("image/")
    media_type = found if media_type is None or pictured else media_type
    if media_type is None:
        raise InvalidValue("what the bytes are cannot be told from them", hint="give media_type, as application/zip")
    if not all(map(_is_word, media_type.split("/"))) or media_type.count("/") != 1:
        raise InvalidValue(f"{media_type!r} is no media type", hint="one is a pair of words, as image/png")
    return Attachment(sha256(data).hex(), media_type.lower(), name)


def keep_files(tx: Transaction, message: AssistantMessage, files: dict[str, bytes]) -> None:
    """Store the images that an answer refers to."""
    for block in message.content:
        if isinstance(block, Attachment) and block.digest in files:
            tx.put_blob(Blob(block.digest, block.media_type, files[block.digest]))


def missing(digest: str) -> InvalidValue:
    """What a commit is refused with that refers to bytes that nobody stored."""
    return InvalidValue(
        f"attachment {digest[:12]}… is not stored here, so nothing may refer to it",
        hint="store its bytes first: harness.attach(bytes), or ctx.attach(bytes) in a tool",
    )


def _told(data: bytes) -> str | None:
    for begin, media_type in _MAGIC:
        if data.startswith(begin):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return None if b"\0" in data else "text/plain"


def _is_word(word: str) -> bool:
    return word.isascii() and bool(word) and all(sign.isalnum() or sign in ".+-_" for sign in word)


def _digests(content: str | list[Said] | list[Content]) -> list[str]:
    return [] if isinstance(content, str) else [block.digest for block in content if isinstance(block, Attachment)]
