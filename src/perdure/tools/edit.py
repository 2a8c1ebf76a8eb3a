"""The tool that changes a piece of a file."""

from typing import Annotated, Any, Final

from msgspec import Meta

from perdure.base.text import well_formed
from perdure.env.errors import EnvError
from perdure.env.protocol import ExecutionEnv
from perdure.extensions.results import ToolError, ToolResult
from perdure.extensions.tool import Tool
from perdure.tools import text_edit
from perdure.tools.locks import writing

EDIT_BYTES: Final = 10 * 1024 * 1024
"""Larger files are data, and would be held in memory several times."""
SHOWN_LINES: Final = 12


async def _edit(
    ctx: Any,
    path: Annotated[str, Meta(description="File to change")],
    old_text: Annotated[str, Meta(description="The exact text to replace; it must be there once")],
    new_text: Annotated[str, Meta(description="What stands there afterwards")],
    replace_all: Annotated[bool, Meta(description="Replace every occurrence")] = False,
) -> ToolResult:
    """Replace an exact piece of text in a file. White space counts; all other text stays as it is."""
    env: ExecutionEnv = ctx.env
    try:
        async with writing(env, path):
            size = (await env.stat(path)).size
            if size > EDIT_BYTES:
                raise ToolError(f"{well_formed(path)} has {size:,} bytes, too many to edit as text; use bash")
            data = await env.read(path)
            if b"\0" in data:
                raise ToolError(f"{well_formed(path)} is a binary file of {size:,} bytes; it cannot be edited as text")
            text = data.decode("utf-8", "surrogateescape")  # so that bytes of another encoding come back unchanged
            edited = text_edit.edit(text, well_formed(old_text), well_formed(new_text), replace_all=replace_all)
            await env.write(path, edited.text.encode("utf-8", "surrogateescape"))
    except EnvError as error:
        raise ToolError(well_formed(str(error))) from error
    lines = edited.lines
    where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines)} places, first at line {lines[0]}"
    return ToolResult(f"changed {well_formed(path)} at {where}", details={"lines": lines[:SHOWN_LINES]})


edit = Tool(_edit, name="edit", replay="unsafe")
