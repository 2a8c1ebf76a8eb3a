"""Where a store lies: what every store in a file asks of its path and folder."""

import os

from perdure.base.errors import InvalidValue, StorageError, StorageReadOnly


def real_path(path: str | os.PathLike[str]) -> str:
    """The path, links resolved; UTF-8 without NUL."""
    try:
        real = os.path.realpath(os.fsdecode(path))
        real.encode()
    except ValueError as error:  # also what cannot be encoded
        raise InvalidValue(f"no path for a store: {path!r}", hint="UTF-8 text without NUL") from error
    return real


def check_place(path: str, *, read_only: bool) -> None:
    """Clear words for what the system only calls "cannot open"."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StorageError(f"there is no folder {folder}", hint="create it first")
    if os.path.isdir(path):
        raise StorageError(f"{path} is a folder", hint="name a file in it")
    if read_only and not os.path.exists(path):
        raise StorageError(f"there is no store at {path}")
    if not read_only and os.path.exists(path) and not os.access(path, os.W_OK):
        raise StorageReadOnly(f"{path} may not be written", hint="open it read-only, or change its permissions")


def flush_folder(folder: str) -> None:
    """A new name in a folder is only certain to be there after a power loss once the folder is flushed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
