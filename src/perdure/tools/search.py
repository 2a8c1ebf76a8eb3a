"""The tools that find files by name and lines by content. They only look, so a cut-off call runs again."""

import posixpath
from typing import Annotated, Any, Final

from msgspec import Meta

from perdure.base.text import cut_head, well_formed
from perdure.env.errors import EnvError
from perdure.env.protocol import ExecutionEnv
from perdure.extensions.extension import Extension
from perdure.extensions.results import ToolError
from perdure.extensions.tool import Tool

SHOWN: Final = 200
MOST_SHOWN: Final = 1_000
SHOWN_BYTES: Final = 50 * 1024
"""What one search shows at most: about 12,000 tokens."""

Path = Annotated[str, Meta(description="Folder to search below, or one file")]
Limit = Annotated[int, Meta(ge=1, le=MOST_SHOWN, description="Results at most")]
Ignored = Annotated[bool, Meta(description="Search files that git ignores too")]


async def _grep(
    ctx: Any,
    pattern: Annotated[str, Meta(description="Extended regular expression, for one line")],
    path: Path = ".",
    files: Annotated[str, Meta(description="Only files that fit, such as *.py (in any folder) or src/**/*.py")] = "**",
    ignore_case: Annotated[bool, Meta(description="Take capital and small letters for the same")] = False,
    ignored: Ignored = False,
    limit: Limit = SHOWN,
) -> str:
    """Find lines in text files by a regular expression. Files that git ignores are left out."""
    env: ExecutionEnv = ctx.env
    try:
        folder = path if (await env.stat(path)).kind == "directory" else posixpath.dirname(path)
        found = await env.grep(
            pattern,
            under=path,
            files=_anywhere(files),
            limit=limit,
            gitignore=not ignored,
            ignore_case=ignore_case,
        )
    except EnvError as error:
        raise ToolError(well_formed(str(error))) from error
    lines = [f"{posixpath.join(_prefix(folder), match.path)}:{match.line}: {match.text}" for match in found.items]
    return _shown(lines, found.complete, "lines match", "give a narrower pattern, path or files")


async def _find(
    ctx: Any,
    pattern: Annotated[
        str, Meta(description="Glob: *.py finds the name in any folder, src/**/*.py a path; ** is any folders")
    ],
    path: Path = ".",
    ignored: Ignored = False,
    limit: Limit = SHOWN,
) -> str:
    """Find files by name. Files that git ignores are left out."""
    env: ExecutionEnv = ctx.env
    try:
        found = await env.glob(_anywhere(pattern), under=path, limit=limit, gitignore=not ignored)
    except EnvError as error:
        raise ToolError(well_formed(str(error))) from error
    lines = [posixpath.join(_prefix(path), item) for item in found.items]
    return _shown(lines, found.complete, "files fit", "give a narrower pattern or path")


grep = Tool(_grep, name="grep", replay="safe")
find = Tool(_find, name="find", replay="safe")
search_tools = Extension("search")
search_tools.add(grep, find)


def _anywhere(pattern: str) -> str:
    """A bare name is looked for in every folder, as people mean it."""
    return pattern if "/" in pattern or not pattern else f"**/{pattern}"


def _prefix(folder: str) -> str:
    """So that a path found can be given to `read` as it is."""
    return "" if folder in (".", "./") else folder


def _shown(lines: list[str], complete: bool, what: str, hint: str) -> str:
    if not lines:
        return f"[no {what}]" if complete else f"[no {what} in what could be searched; {hint}]"
    shown: list[str] = []
    room = SHOWN_BYTES
    for line in lines:
        text = cut_head(well_formed(line.replace("\n", "\\n")), SHOWN_BYTES // 10)
        room -= len(text.encode()) + 1
        if room < 0:
            complete = False
            break
        shown.append(text)
    if not complete:
        shown.append(f"[the first {len(shown)}; more {what}: {hint}]")
    return "\n".join(shown)
