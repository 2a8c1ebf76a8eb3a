"""Where a state root keeps what. The root is `PERDURE_HOME`, by default below `XDG_STATE_HOME`."""

import hashlib
import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

HOME_VARIABLE: Final = "PERDURE_HOME"
LONG_KEY: Final = 100
"""Encoded keys that are longer are cut and told apart by their hash: names of files have 255 bytes at most."""


class StateRoot:
    """The folder of one orchestrator. Compared by its real path, so a link to it is the same root."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        given = path or os.environ.get(HOME_VARIABLE) or f"{state}/perdure/agents"
        self.path: Final = Path(os.path.realpath(os.path.expanduser(given)))

    def __repr__(self) -> str:
        return f"StateRoot({str(self.path)!r})"

    @property
    def store(self) -> Path:
        """The orchestrator's session."""
        return self.path / "orchestrator.db"

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def nudge(self) -> Path:
        """Written anew whenever a request was recorded: the orchestrator hears of it also from senders that died."""
        return self.path / "nudge"

    @property
    def about(self) -> Path:
        """What the running orchestrator tells of itself: `OrchestratorCard` as JSON, replaced atomically."""
        return self.path / "orchestrator.json"

    @property
    def inbox(self) -> Path:
        """Requests that are recorded and not decided: one folder for each sender, one file for each request."""
        return self.path / "inbox"

    @property
    def pins(self) -> Path:
        """What runs must not lose or see changed, under the hash of its bytes."""
        return self.path / "pins"

    @property
    def bin(self) -> Path:
        """First on the PATH of what subagents start."""
        return self.path / "bin"

    def workflow(self, wid: str) -> Path:
        return self.path / "workflows" / encoded(wid)

    def call(self, wid: str, key: str) -> Path:
        """The folder of one call: its session, and what its hosts wrote to standard error."""
        return self.workflow(wid) / "calls" / encoded(key)

    def call_store(self, wid: str, key: str) -> Path:
        """The call's own session, whatever generation."""
        return self.call(wid, key) / "session.db"

    def artifacts(self, wid: str) -> Path:
        return self.workflow(wid) / "artifacts"

    def console(self, wid: str) -> Path:
        """What the workflow's script printed."""
        return self.workflow(wid) / "console.log"

    @property
    def runtime(self) -> Path:
        """Sockets. A short path of its own, since a socket's may have 107 bytes at most."""
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        base = os.environ.get("XDG_RUNTIME_DIR")
        folder = Path(base) if base and os.path.isdir(base) else Path(f"/tmp/perdure-{os.getuid()}")
        return folder / "perdure" / f"agents-{name}"

    @property
    def socket(self) -> Path:
        """Where the orchestrator listens."""
        return self.runtime / "orchestrator.sock"

    def host_socket(self, execution: str) -> Path:
        """Where the host of an execution listens."""
        return self.runtime / f"x-{hashlib.sha256(execution.encode()).hexdigest()[:20]}.sock"


def encoded(name: str) -> str:
    """A name as one part of a path: nothing escapes it, no two names meet, and it is never too long."""
    safe = quote(name, safe="@:+=, ").replace(".", "%2E") if name.strip(".") == "" else quote(name, safe="@:+=,. ")
    if len(safe) <= LONG_KEY and safe.strip():
        return safe
    return f"{safe[:LONG_KEY]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
