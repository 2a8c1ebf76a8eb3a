"""The tools that find files and lines, and the look at an image, on real files."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from perdure.env.local import LocalEnv
from perdure.extensions.results import ToolError, ToolResult
from perdure.models.messages import Attachment
from perdure.testing.env_suite import run
from perdure.tools import coding_tools, search_tools
from perdure.tools.read import IMAGE_BYTES
from perdure.tools.search import SHOWN_BYTES


class Context:
    """What of a tool's context these tools use."""

    def __init__(self, folder: Path) -> None:
        self.env = LocalEnv(folder)
        self.attached: list[bytes] = []

    async def attach(self, content: bytes, media_type: str | None = None, *, name: str | None = None) -> Attachment:
        self.attached.append(content)
        return Attachment(sha256(content).hexdigest(), media_type or "", name)


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    return Context(tmp_path)


async def call(ctx: Context, tool: str, **arguments: Any) -> Any:
    made = {**search_tools.tools, **coding_tools.tools}[tool]
    return await made(ctx, **made.decode(arguments))


async def refused(ctx: Context, tool: str, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await call(ctx, tool, **arguments)
    return caught.value.what


async def tree(ctx: Context) -> None:
    """A repository with something in it that git ignores."""
    await ctx.env.write("src/main.py", b"import os\n\n\ndef main():\n    return os.getcwd()\n")
    await ctx.env.write("src/deep/other.py", b"MAIN = 1\n")
    await ctx.env.write("build/main.py", b"def main(): pass\n")
    await ctx.env.write(".gitignore", b"build/\n")
    await run(ctx.env, "git init -q .")


def test_searches_may_be_repeated() -> None:
    assert {name: tool.replay for name, tool in search_tools.tools.items()} == {"grep": "safe", "find": "safe"}


@pytest.mark.slow
async def test_lines_are_found_with_paths_that_can_be_read(ctx: Context) -> None:
    await tree(ctx)
    assert await call(ctx, "grep", pattern="def main") == "src/main.py:4: def main():"
    assert await call(ctx, "grep", pattern="main", ignore_case=True) == (
        "src/deep/other.py:1: MAIN = 1\nsrc/main.py:4: def main():"
    )
    assert await call(ctx, "grep", pattern="main", path="src", files="main.*") == "src/main.py:4: def main():"
    assert await call(ctx, "grep", pattern="main", path="src/main.py") == "src/main.py:4: def main():"
    assert await call(ctx, "grep", pattern="def main", ignored=True) == (
        "build/main.py:1: def main(): pass\nsrc/main.py:4: def main():"
    )
    assert await call(ctx, "grep", pattern="nowhere") == "[no lines match]"
    assert "cannot be used" in await refused(ctx, "grep", pattern="(")
    assert "does not exist" in await refused(ctx, "grep", pattern="x", path="nowhere")


@pytest.mark.slow
async def test_files_are_found_in_any_folder_and_below_one(ctx: Context) -> None:
    await tree(ctx)
    assert await call(ctx, "find", pattern="*.py") == "src/deep/other.py\nsrc/main.py"
    assert await call(ctx, "find", pattern="src/*.py") == "src/main.py"
    assert await call(ctx, "find", pattern="**/deep/*.py") == "src/deep/other.py"
    assert await call(ctx, "find", pattern="*.py", path="src/deep") == "src/deep/other.py"
    assert await call(ctx, "find", pattern="main.py", ignored=True) == "build/main.py\nsrc/main.py"
    assert await call(ctx, "find", pattern="*.rs") == "[no files fit]"
    assert "leads out" in await refused(ctx, "find", pattern="../*")
    assert "does not exist" in await refused(ctx, "find", pattern="*", path="nowhere")


async def test_what_is_found_is_bounded_and_says_so(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "many").write_text("word\n" * 1_500)
    text = await call(ctx, "grep", pattern="word", limit=3)
    lines = "many:1: word\nmany:2: word\nmany:3: word\n"
    assert text == f"{lines}[the first 3; more lines match: give a narrower pattern, path or files]"
    for number in range(300):
        (tmp_path / f"{number:03}{'n' * 240}").touch()
    text = await call(ctx, "find", pattern="*n", limit=1_000)
    assert len(text.encode()) < SHOWN_BYTES + 200
    assert text.endswith("more files fit: give a narrower pattern or path]")


async def test_names_with_line_ends_stay_on_their_line(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("x")
    assert await call(ctx, "find", pattern="*") == "a\\nb"


@pytest.mark.parametrize(
    ("begin", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_an_image_is_looked_at_by_reference(ctx: Context, tmp_path: Path, begin: bytes, media_type: str) -> None:
    (tmp_path / "picture").write_bytes(begin + b"\0rest")
    result: ToolResult = await call(ctx, "read", path="picture")
    block = result.content[0]
    assert isinstance(block, Attachment)
    assert (block.media_type, block.name, ctx.attached) == (media_type, "picture", [begin + b"\0rest"])


async def test_an_image_that_no_provider_takes_is_refused_with_its_size(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * IMAGE_BYTES)
    assert "5,242,888 bytes" in await refused(ctx, "read", path="picture")
    assert ctx.attached == []
