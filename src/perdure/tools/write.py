"""The tool that writes whole files."""

from typing import Annotated, Any

from msgspec import Meta

from perdure.base.text import well_formed
from perdure.env.errors import EnvError, FileNotThere
from perdure.env.protocol import ExecutionEnv
from perdure.extensions.results import ToolError
from perdure.extensions.tool import Tool
from perdure.tools.locks import writing


async def _write(
    ctx: Any,
    path: Annotated[str, Meta(description="File to write; missing folders are made")],
    content: Annotated[str, Meta(description="The whole new content")],
) -> str:
    """Create a file, or replace all of it. The file is never left half-written."""
    env: ExecutionEnv = ctx.env
    data = well_formed(content).encode()
    try:
        async with writing(env, path):
            new = await _is_new(env, path)
            await env.write(path, data)
    except EnvError as error:
        raise ToolError(well_formed(str(error))) from error
    return f"{'created' if new else 'replaced'} {well_formed(path)} ({len(data):,} bytes)"


write = Tool(_write, name="write", replay="safe")


async def _is_new(env: ExecutionEnv, path: str) -> bool:
    try:
        await env.stat(path)
    except FileNotThere:
        return True
    return False
