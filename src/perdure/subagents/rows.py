"""Typed access to the state rows: from a transaction, a session, or a read-only opener."""

from typing import Any, Protocol, TypeVar

from perdure import Document, NotFound, TaskTransaction
from perdure.subagents.names import call_of
from perdure.subagents.state import Call, CallDoc, Workflow, WorkflowDoc

T = TypeVar("T")


class Reader(Protocol):
    """What rows can be read from."""

    async def snapshot(self, kind: Document[Any], scope_id: int | None = None, *, key: str | None = None) -> Any: ...
    async def document_keys(
        self,
        kind: Document[Any],
        scope_id: int | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int = 100,
    ) -> list[str]: ...


PAGE = 1000


async def read(reader: Reader, kind: Document[T], key: str) -> T | None:
    """A row, or None."""
    found: T | None = await reader.snapshot(kind, None, key=key)
    return found


async def need(reader: Reader, kind: Document[T], key: str) -> T:
    """A row that must be there. Raises `NotFound`."""
    found = await read(reader, kind, key)
    if found is None:
        raise NotFound(f"no {kind.kind.rsplit('.', 1)[-1]} {key!r:.200}")
    return found


async def write(tx: TaskTransaction, kind: Document[T], key: str, value: T) -> None:
    """Store a row; what changed is what is written."""
    await tx.set(kind, None, value, key=key)


async def keys(reader: Reader, kind: Document[Any], prefix: str = "") -> list[str]:
    """All keys of a family, those that begin with `prefix`, in order."""
    found: list[str] = []
    while page := await reader.document_keys(kind, prefix=prefix, after=found[-1] if found else None, limit=PAGE):
        found += page
        if len(page) < PAGE:
            break
    return found


async def rows(reader: Reader, kind: Document[T], prefix: str = "") -> list[T]:
    """All rows of a family, those whose keys begin with `prefix`, in the order of their keys."""
    found = [await read(reader, kind, key) for key in await keys(reader, kind, prefix)]
    return [row for row in found if row is not None]


async def workflow(reader: Reader, wid: str) -> Workflow | None:
    return await read(reader, WorkflowDoc, wid)


async def call(reader: Reader, wid: str, key: str) -> Call | None:
    return await read(reader, CallDoc, call_of(wid, key))


async def calls(reader: Reader, of: Workflow) -> list[Call]:
    """The calls of a workflow, in the order of their first proposal."""
    found = [await call(reader, of.wid, key) for key in of.calls]
    return [row for row in found if row is not None]


async def put_workflow(tx: TaskTransaction, row: Workflow) -> None:
    await write(tx, WorkflowDoc, row.wid, row)


async def put_call(tx: TaskTransaction, row: Call) -> None:
    await write(tx, CallDoc, call_of(row.wid, row.key), row)
