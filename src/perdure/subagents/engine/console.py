"""What a workflow's script printed."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

CONSOLE_BYTES: Final = 1024 * 1024
CONTROL: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What would end a line, or tell a terminal something."""
FULL: Final = "the log is full: nothing more is kept"


class Console:
    """A file of lines: time, incarnation, level, text with its control characters escaped. At most `CONSOLE_BYTES`,
    then one line says so."""

    def __init__(self, path: Path, incarnation: int, now: Callable[[], float]) -> None:
        self._path = path
        self._incarnation = incarnation
        self._now = now
        self._full = False

    def line(self, level: str, text: str) -> None:
        """Add a line. What cannot be written is dropped: a log stops no work."""
        if self._full:
            return
        time = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds")
        escaped = CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
        content = f"{time} {self._incarnation} {level} {escaped}\n".encode("utf-8", "backslashreplace")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(self._path, "ab") as file:
                size = file.tell()
                if size + len(content) > CONSOLE_BYTES:
                    self._full = True
                    if not _says_full(self._path):
                        file.write(f"{time} {self._incarnation} warning {FULL}\n".encode())
                    return
                file.write(content)
        except OSError:
            return


def _says_full(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 4 * len(FULL)))
        return FULL.encode() in file.read()
