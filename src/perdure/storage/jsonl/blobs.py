"""Blobs: a folder beside the file, with one file for each. A blob's file is there before the line that names it."""

import contextlib
import os
import zlib

from perdure.base.errors import StorageCorrupt
from perdure.storage.jsonl.content import StoredBlob
from perdure.storage.jsonl.file import cannot, flush_descriptor
from perdure.storage.place import flush_folder
from perdure.storage.records import Blob


def folder_of(path: str) -> str:
    """Where the blobs of a store lie."""
    return path + ".blobs"


def write_blobs(path: str, blobs: list[Blob], *, flush: bool) -> list[StoredBlob]:
    """Write the files whole, flushed if asked. Raises `StorageFull`, `StorageError`: then no line may name them."""
    folder = folder_of(path)
    try:
        if not os.path.isdir(folder):
            os.mkdir(folder)
            if flush:
                flush_folder(os.path.dirname(folder))
        for blob in blobs:
            _write(os.path.join(folder, blob.digest), blob.content, flush)
        if flush:
            flush_folder(folder)
    except OSError as error:
        raise cannot(error, folder) from error
    return [StoredBlob(one.digest, one.media_type, len(one.content), zlib.crc32(one.content)) for one in blobs]


def read_blob(path: str, stored: StoredBlob) -> bytes:
    """The bytes of a blob. Raises `StorageCorrupt` if they are not those that were written."""
    name = os.path.join(folder_of(path), stored.digest)
    try:
        with open(name, "rb") as file:
            found = file.read()
    except OSError as error:
        raise StorageCorrupt(f"the blob {name} cannot be read: {error.strerror}", hint="restore the folder") from error
    if len(found) != stored.size or zlib.crc32(found) != stored.crc:
        raise StorageCorrupt(f"the blob {name} is damaged", hint="restore the file from a copy")
    return found


def _write(name: str, content: bytes, flush: bool) -> None:
    new = name + ".new"
    try:
        with open(new, "wb") as file:
            file.write(content)
            file.flush()
            if flush:
                flush_descriptor(file.fileno())
        os.replace(new, name)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
