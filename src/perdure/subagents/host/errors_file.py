"""What a host writes to standard error, kept up to a bound: it is for diagnosis only, and must fill no disk."""

import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ERRORS_BYTES: Final = 256 * 1024
"""What is kept for a call; whoever starts the next host makes room (see `processes.spawn_host`)."""
RESERVED_BYTES: Final = 16 * 1024
"""Left for the last words of the interpreter."""
PIECE: Final = 64 * 1024
CUT: Final = b"\n[more was written and not kept]\n"


@contextmanager
def bounded_errors(limit: int = ERRORS_BYTES - RESERVED_BYTES) -> Iterator[None]:
    """Within it, standard error goes on to its file up to `limit` bytes of the file. Anything but a file is left alone.

    Threads copy it, so that whatever writes there is bounded: prints, libraries, children that inherit it.
    """
    try:
        status = os.fstat(2)
    except OSError:
        yield
        return
    if not stat.S_ISREG(status.st_mode):
        yield
        return
    file = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    copier = threading.Thread(target=_copy, args=(reading, file, limit - status.st_size), daemon=True)
    copier.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(file, 2)  # nobody of ours writes to the pipe any more; a child that does ends with its execution
        copier.join(0.5)


def _copy(reading: int, file: int, left: int) -> None:
    while piece := os.read(reading, PIECE):
        if left > 0:
            os.write(file, piece[:left])
            if len(piece) > left:
                os.write(file, CUT)
            left -= len(piece)
