"""Outputs as files: immutable artifacts with a pointer to the latest, or one file that somebody named."""

import hashlib
import os
import secrets
from pathlib import Path
from typing import Any

from perdure.subagents.paths import StateRoot, encoded
from perdure.subagents.state import Call, Workflow

UNPUBLISHED = ("stopped", "timeout", "budget")


def publish(root: StateRoot, workflow: Workflow, call: Call, generation: int, result: dict[str, Any]) -> dict[str, Any]:
    """Write the output where the spec wants it; what the result says of that. Repeating it gives the same."""
    wanted, text = call.spec.get("output"), str(result.get("output", ""))
    if wanted is None or not text or result["status"] in UNPUBLISHED:
        return {}
    if os.path.isabs(wanted):
        return _named(Path(wanted), text)
    folder = root.artifacts(workflow.wid) / f"{encoded(call.key)}@{generation}"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    path = folder / f"{digest}-{encoded(Path(wanted).name)}"
    if not path.exists():
        _write(path, text)
    latest = folder.parent / f"{encoded(call.key)}-latest"
    pointer = folder.parent / f".{latest.name}.{secrets.token_hex(4)}"
    pointer.symlink_to(os.path.relpath(path, folder.parent))
    os.replace(pointer, latest)
    return {"artifacts": [str(path)]}


def _named(path: Path, text: str) -> dict[str, Any]:
    """Only a file that is not there, or says the same, is written: what somebody else wrote stays."""
    try:
        if path.exists() and path.read_text("utf-8", "replace") != text:
            return {}
        _write(path, text)
    except OSError:
        return {}
    return {"artifacts": [str(path)]}


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(partial, "x", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
