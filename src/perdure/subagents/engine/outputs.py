"""Outputs as files: immutable artifacts with a pointer to the latest, or one file that somebody named."""

import asyncio
import hashlib
import os
import secrets
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure import TaskTransaction
from perdure.subagents import rows
from perdure.subagents.names import call_of
from perdure.subagents.notices import put_notice
from perdure.subagents.paths import StateRoot, encoded
from perdure.subagents.state import Call, OutputDoc, Workflow

UNPUBLISHED: Final = ("stopped", "timeout", "budget")


class Published(msgspec.Struct, kw_only=True):
    """What became of an output."""

    draft: dict[str, Any] = {}
    """What the result says of it."""
    path: str | None = None
    digest: str = ""
    """Of what was written to a path that somebody named."""
    problem: str | None = None


async def publish(
    reader: rows.Reader, root: StateRoot, workflow: Workflow, call: Call, result: dict[str, Any]
) -> Published:
    """Write the output where the spec wants it. Repeating it gives the same."""
    wanted, text = call.spec.get("output"), str(result.get("output", ""))
    if wanted is None or not text or result["status"] in UNPUBLISHED:
        return Published()
    if not os.path.isabs(wanted):
        try:
            return await asyncio.to_thread(_artifact, root, workflow, call, str(wanted), text)
        except OSError as error:  # the result stands: it is whole in the store
            return Published(problem=str(error))
    ours: str | None = await rows.read(reader, OutputDoc, wanted)
    return await asyncio.to_thread(_named, Path(wanted), text, ours)


async def record_output(tx: TaskTransaction, workflow: Workflow, call: Call, published: Published) -> None:
    """In the commit of the seal: what was written, so that it is known as ours; and what could not be."""
    if published.digest and published.path is not None:
        await rows.write(tx, OutputDoc, published.path, published.digest)
    if published.problem is not None:
        text = f"{call_of(call.wid, call.key)}: its output was not written: {published.problem}"
        await put_notice(tx, workflow, "unknown", text, key=call.key, detail=f"output:{call.generation}")


def _artifact(root: StateRoot, workflow: Workflow, call: Call, wanted: str, text: str) -> Published:
    folder = root.artifacts(workflow.wid) / f"{encoded(call.key)}@{call.generation}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"1-{encoded(Path(wanted).name or 'output')}"
    if path.exists():
        if _digest(path.read_bytes()) != _digest(_bytes(text)):
            error = f"{path} was published before with another text"
            return Published(draft={"status": "failed", "error": error}, problem=error)
    else:
        _write(path, text)
    latest = folder.parent / f"{encoded(call.key)}-latest"
    pointer = latest.with_name(f".{latest.name}.{secrets.token_hex(4)}")
    pointer.symlink_to(os.path.relpath(path, latest.parent))
    os.replace(pointer, latest)
    return Published(draft={"artifacts": [str(path)]})


def _named(path: Path, text: str, ours: str | None) -> Published:
    """A file is replaced if it is not there, as we left it, or the same: what somebody else wrote stays."""
    digest = _digest(_bytes(text))
    try:
        found = _digest(path.read_bytes()) if path.exists() else None
        if found not in (None, ours, digest):
            return Published(path=str(path), problem=f"somebody else wrote {path}")
        if found != digest:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, text)
    except OSError as error:
        return Published(path=str(path), problem=str(error))
    return Published(draft={"artifacts": [str(path)]}, path=str(path), digest=digest)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(partial, "xb") as file:
            file.write(_bytes(text))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
