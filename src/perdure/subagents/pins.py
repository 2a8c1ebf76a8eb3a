"""What a run must not lose or see changed: bytes under their hash, written before the run is admitted."""

import errno
import hashlib
import stat
from pathlib import Path
from typing import Final

from perdure.subagents.paths import StateRoot
from perdure.subagents.spool import write_durably

PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EBUSY, errno.EINTR, errno.EAGAIN)
"""Troubles of the machine, which pass: the request is taken up again."""

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of one file: a script gets its inputs as texts, in a heap of 256 MiB."""


class PinFailed(Exception):
    """What was named cannot be pinned: the run is rejected."""


def pin(root: StateRoot, content: bytes) -> str:
    """Keep bytes; returns their digest. The same bytes are kept once."""
    digest = hashlib.sha256(content).hexdigest()
    path = root.pins / digest
    if not path.exists():
        root.pins.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_durably(path, content)
    return digest


def pin_file(root: StateRoot, path: Path) -> str:
    """Keep a file's bytes. Raises `PinFailed` for what cannot be read, `OSError` for troubles that pass."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise PinFailed(f"pin-failed: {path}: no file, or one of more than {LARGEST} bytes")
        content = path.read_bytes()
    except OSError as error:
        if error.errno in PASSING:
            raise
        raise PinFailed(f"pin-failed: {path}: {error.strerror}") from error
    return pin(root, content)


def pinned(root: StateRoot, digest: str) -> bytes:
    """The bytes of a digest."""
    return (root.pins / digest).read_bytes()
