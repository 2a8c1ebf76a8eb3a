"""The tool that reads text files, of any size."""

from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from msgspec import Meta

from perdure.base.text import cut_head, decode_utf8, well_formed
from perdure.env.errors import EnvError
from perdure.env.protocol import ExecutionEnv
from perdure.extensions.results import ToolError, ToolResult
from perdure.extensions.tool import Tool

READ_LINES: Final = 2_000
READ_BYTES: Final = 50 * 1024
"""What one read shows at most: about 12,000 tokens."""
LINE_BYTES: Final = 2_000
"""A longer line is cut."""
SCAN_BYTES: Final = 256 * 1024
"""Read at a time while looking for a line."""
IMAGE_BYTES: Final = 5 * 1024 * 1024
"""A larger image is taken by no provider that we know."""
IMAGES: Final = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
"""Media types by how a file begins."""
SNIFF_BYTES: Final = 8 * 1024
"""A NUL in the first of a file means that it is no text."""


async def _read(
    ctx: Any,
    path: Annotated[str, Meta(description="File to read, relative to the working directory or absolute")],
    offset: Annotated[int, Meta(ge=1, description="First line, counted from 1")] = 1,
    limit: Annotated[int, Meta(ge=1, le=READ_LINES, description="Lines at most")] = READ_LINES,
) -> str | ToolResult:
    """Read a text file, or look at an image. A long file comes in parts; the end of each tells how to go on."""
    env: ExecutionEnv = ctx.env
    try:
        size = (await env.stat(path)).size
        begin = await env.read(path, limit=SNIFF_BYTES)
        if (media_type := _image(begin)) is not None:
            return await _looked_at(ctx, path, size, media_type)
        if b"\0" in begin:
            raise ToolError(f"{well_formed(path)} is a binary file of {size:,} bytes; it cannot be read as text")
        return await _shown(env, path, offset, limit, size)
    except EnvError as error:
        raise ToolError(well_formed(str(error))) from error


read = Tool(_read, name="read", replay="safe")


def _image(begin: bytes) -> str | None:
    """The media type of an image, by how it begins."""
    if begin[:4] == b"RIFF" and begin[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in IMAGES.items() if begin.startswith(magic)), None)


async def _looked_at(ctx: Any, path: str, size: int, media_type: str) -> ToolResult:
    """The image, kept once in the session and shown by reference."""
    if size > IMAGE_BYTES:
        raise ToolError(f"{well_formed(path)} is an image of {size:,} bytes; at most {IMAGE_BYTES:,} can be looked at")
    data = await ctx.env.read(path, limit=IMAGE_BYTES)
    return ToolResult([await ctx.attach(data, media_type, name=well_formed(path))])


async def _shown(env: ExecutionEnv, path: str, offset: int, limit: int, size: int) -> str:
    shown: list[str] = []
    room = READ_BYTES
    number = 0
    async for line, length in _lines(env, path):
        number += 1
        if number < offset:
            continue
        text = _line(line, length)
        room -= len(text.encode()) + 1
        if len(shown) == limit or (room < 0 and shown):
            note = f"[lines {offset} to {number - 1} of a file of {size:,} bytes; go on with offset={number}]"
            return "\n".join([*shown, note])
        shown.append(text)
    if number == 0 and offset == 1:
        return "[the file is empty]"
    if not shown:
        raise ToolError(f"{well_formed(path)} has only {number} lines")
    return "\n".join(shown)


async def _lines(env: ExecutionEnv, path: str) -> AsyncIterator[tuple[bytes, int]]:
    """Each line's beginning and its whole length, without its end. Memory stays within one piece of the file."""
    begin, length, at = b"", 0, 0
    while piece := await env.read(path, offset=at, limit=SCAN_BYTES):
        at += len(piece)
        *whole, rest = piece.split(b"\n")
        for part in whole:
            yield (begin + part if length <= LINE_BYTES else begin), length + len(part)
            begin, length = b"", 0
        if length <= LINE_BYTES:
            begin += rest[: 2 * LINE_BYTES]
        length += len(rest)
    if length:
        yield begin, length


def _line(line: bytes, length: int) -> str:
    if length <= LINE_BYTES:
        return decode_utf8(line.removeprefix(BOM_UTF8).removesuffix(b"\r"))
    return f"{cut_head(decode_utf8(line[: LINE_BYTES + 4]), LINE_BYTES)}[… cut: the line has {length:,} bytes]"
