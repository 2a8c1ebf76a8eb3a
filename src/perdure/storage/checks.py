"""What every store of ours refuses in the same words."""

from perdure.base.errors import StorageError, StorageRejected
from perdure.storage.records import Batch


def check_follows(batch: Batch, seq: int, next_id: int) -> None:
    """A batch must come directly after what is stored."""
    if batch.seq != seq + 1:
        raise StorageRejected(f"commit {batch.seq} does not follow commit {seq}")
    if batch.next_id < next_id:
        raise StorageRejected(f"next id {batch.next_id} lies before {next_id}")
    for revision in batch.revisions:
        if revision.seq != batch.seq:
            raise StorageRejected(f"commit {batch.seq} writes a revision of commit {revision.seq}")


def need_one(given: bool) -> None:
    """A scan without any of the filters that have an index would read the whole store."""
    if not given:
        raise StorageError("this scan needs a conversation, an owner, a task waited on, or live=True")


def key_after(prefix: str) -> str | None:
    """The first text, in code point order, that is behind all texts with this prefix; None: there is none."""
    while prefix:
        last = ord(prefix[-1]) + 1
        if last == 0xD800:
            last = 0xE000  # no text holds half a surrogate pair
        if last <= 0x10FFFF:
            return prefix[:-1] + chr(last)
        prefix = prefix[:-1]
    return None
