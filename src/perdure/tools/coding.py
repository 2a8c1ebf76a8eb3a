"""The coding tools: read, write, edit, bash. They touch files and processes only through `ctx.env`."""

from typing import Annotated, Any, Final

from msgspec import Meta

from perdure.base.text import cut_head, decode_utf8
from perdure.env.errors import EnvError, FileNotThere
from perdure.extensions.extension import Extension
from perdure.extensions.results import ToolError, ToolResult
from perdure.tools.file_locks import writing
from perdure.tools.shown_output import ShownOutput
from perdure.tools.text_edit import edit as edit_text

READ_LINES: Final = 2_000
READ_BYTES: Final = 50 * 1024
"""What one read shows at most."""
LINE_BYTES: Final = 2_000
"""A longer line is cut."""
SCAN_BYTES: Final = 256 * 1024
"""Bytes read at a time while looking for a line."""
EDIT_BYTES: Final = 10 * 1024 * 1024
"""Files above this are not edited as text."""
DEFAULT_TIMEOUT: Final = 120.0
LONGEST_TIMEOUT: Final = 3600.0

coding_tools = Extension("coding")


@coding_tools.tool(replay="safe")
async def read(
    ctx: Any,
    path: Annotated[str, Meta(description="File to read, relative to the working directory or absolute")],
    offset: Annotated[int, Meta(ge=1, description="First line, counted from 1")] = 1,
    limit: Annotated[int, Meta(ge=1, le=READ_LINES, description="Lines at most")] = READ_LINES,
) -> str:
    """Read a text file. Long files come in parts: the end of each tells how to go on."""
    try:
        size = (await ctx.env.stat(path)).size
        lines, more = await _read_lines(ctx.env, path, offset, limit)
    except EnvError as error:
        raise ToolError(error.what) from error
    if not lines and offset > 1:
        raise ToolError(f"{path} has fewer than {offset} lines")
    text = "\n".join(lines)
    if more:
        text += f"\n[more lines follow; read on with offset={offset + len(lines)}; the file has {size} bytes]"
    return text


@coding_tools.tool(replay="safe")
async def write(
    ctx: Any,
    path: Annotated[str, Meta(description="File to write; missing folders are made")],
    content: Annotated[str, Meta(description="The whole new content")],
) -> str:
    """Create a file, or replace all of it. The file is never left half-written."""
    data = content.encode()
    try:
        async with writing(ctx.env, path):
            try:
                before = (await ctx.env.stat(path)).size
            except FileNotThere:
                before = None
            await ctx.env.write(path, data)
    except EnvError as error:
        raise ToolError(error.what) from error
    return f"{'created' if before is None else 'replaced'} {path} ({len(data)} bytes)"


@coding_tools.tool(replay="unsafe")
async def edit(
    ctx: Any,
    path: Annotated[str, Meta(description="File to change")],
    old_text: Annotated[str, Meta(description="The exact text to replace; it must be there once")],
    new_text: Annotated[str, Meta(description="What stands there afterwards")],
    replace_all: Annotated[bool, Meta(description="Replace every occurrence")] = False,
) -> str:
    """Replace an exact piece of text in a file."""
    try:
        async with writing(ctx.env, path):
            if (await ctx.env.stat(path)).size > EDIT_BYTES:
                raise ToolError(f"{path} is too large to edit as text; use bash")
            text = _as_text(await ctx.env.read(path), path)
            changed = edit_text(text, old_text, new_text, replace_all=replace_all)
            await ctx.env.write(path, changed.text.encode())
    except EnvError as error:
        raise ToolError(error.what) from error
    return f"changed {path} in {changed.places} place{'s' if changed.places > 1 else ''}"


@coding_tools.tool(replay="unsafe")
async def bash(
    ctx: Any,
    command: Annotated[str, Meta(description="Shell command, run in the working directory")],
    timeout: Annotated[
        float, Meta(gt=0, le=LONGEST_TIMEOUT, description="Seconds until it is stopped")
    ] = DEFAULT_TIMEOUT,
) -> ToolResult:
    """Run a shell command. Everything it starts ends with it, background processes included."""
    output = ShownOutput()
    try:
        async with await ctx.env.exec(command, timeout=timeout, tag=ctx.call_tag) as execution:
            async for chunk in execution:
                ctx.output(output.add(chunk.data))
            end = await execution.wait()
    except EnvError as error:
        raise ToolError(error.what) from error
    text = output.end()
    notes = []
    if end.timed_out:
        notes.append(f"stopped after {timeout:g} s")
    elif end.signal is not None:
        notes.append(f"ended by signal {end.signal}")
    elif end.code:
        notes.append(f"exit code {end.code}")
    if end.survivors:
        notes.append(f"could not be ended: {', '.join(end.survivors)}")
    failed = bool(end.timed_out or end.signal is not None or end.code or end.survivors)
    shown = text.rstrip("\n") or "(no output)"
    return ToolResult(
        shown + "".join(f"\n[{note}]" for note in notes),
        is_error=failed,
        details={"exit_code": end.code, "signal": end.signal, "timed_out": end.timed_out},
    )


async def _read_lines(env: Any, path: str, offset: int, limit: int) -> tuple[list[str], bool]:
    """Lines from `offset` on, and whether more follow; the file is read in pieces."""
    lines: list[str] = []
    rest = b""
    number = at = shown = 0
    while True:
        piece = await env.read(path, offset=at, limit=SCAN_BYTES)
        if at == 0 and b"\0" in piece[:8192]:
            raise ToolError(f"{path} is a binary file ({(await env.stat(path)).size} bytes)")
        at += len(piece)
        parts = (rest + piece).split(b"\n")
        rest = parts.pop() if piece else b""
        if not piece and parts == [b""]:
            parts = []
        for part in parts:
            number += 1
            if number < offset:
                continue
            if len(lines) == limit or shown > READ_BYTES:
                return lines, True
            line = _shown_line(part)
            shown += len(line)
            lines.append(line)
        if not piece:
            return lines, False
        if len(rest) > SCAN_BYTES and number + 1 < offset:
            rest = rest[:LINE_BYTES]  # the rest of a huge line that is not asked for


def _shown_line(line: bytes) -> str:
    text = decode_utf8(line.removesuffix(b"\r"))
    if len(text) <= LINE_BYTES:
        return text
    return f"{cut_head(text, LINE_BYTES)} [… line of {len(line)} bytes, cut]"


def _as_text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not UTF-8 text; edit it with bash") from None
