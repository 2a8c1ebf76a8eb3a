"""What the world outside the store saw: one line for every real effect, kept where no crash of the harness reaches."""

import os
from pathlib import Path
from typing import Any

import msgspec

from perdure.base.ids import TaskId


class Effect(msgspec.Struct, frozen=True):
    """One real execution of something."""

    name: str
    task: TaskId
    """The call or task that did it."""
    process: int
    """The number of the process that did it, from 1."""
    unsafe: bool = True
    """It must not happen twice for one task."""
    token: str | None = None
    """What every rerun of a safe effect must share: an idempotency key kept in a memo."""


class Ledger:
    """Effects in memory: outlives the harness, dies with the test."""

    def __init__(self) -> None:
        self.process = 1
        """The number of the process that runs now; the explorer counts it up."""
        self._effects: list[Effect] = []

    def ran(self, who: Any, name: str, *, unsafe: bool = True, token: str | None = None) -> None:
        """Note that an effect happens now. `who` is the tool's context or the task's run."""
        self.write(Effect(name, who.task_id, self.process, unsafe, token))

    def write(self, effect: Effect) -> None:
        """Keep one line."""
        self._effects.append(effect)

    def effects(self) -> list[Effect]:
        """All lines, oldest first."""
        return list(self._effects)

    def copy(self) -> "Ledger":
        """Another ledger with the lines of this one."""
        other = Ledger()
        other.process, other._effects = self.process, self.effects()
        return other

    def count(self, name: str) -> int:
        """How often an effect happened."""
        return sum(effect.name == name for effect in self.effects())


class FileLedger(Ledger):
    """Effects in a file, each flushed to the disk before the effect counts as done: outlives a killed process."""

    def __init__(self, path: str | os.PathLike[str], process: int = 1) -> None:
        super().__init__()
        self.process = process
        self._path = Path(path)

    def write(self, effect: Effect) -> None:
        """Append one line and flush it."""
        self.append(msgspec.json.encode(effect))

    def append(self, line: bytes) -> None:
        """Append one line of JSON and flush it."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def effects(self) -> list[Effect]:
        """All whole lines of the file, oldest first."""
        return [msgspec.json.decode(line, type=Effect) for line in self.lines()]

    def lines(self) -> list[bytes]:
        """All whole lines, oldest first; one that a kill cut off is left out."""
        if not self._path.exists():
            return []
        return [line for line in self._path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
