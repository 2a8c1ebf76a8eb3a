"""The coding tools on real files and commands."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from perdure.env.local import LocalEnv
from perdure.extensions.results import ToolError, ToolResult
from perdure.tools import coding_tools


class Context:
    """What of a tool's context these tools use."""

    def __init__(self, folder: Path) -> None:
        self.env = LocalEnv(folder)
        self.call_tag = f"test:{folder.name}"
        self.shown: list[str] = []

    def output(self, chunk: str) -> None:
        self.shown.append(chunk)


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    return Context(tmp_path)


async def call(ctx: Context, tool: str, **arguments: Any) -> Any:
    made = coding_tools.tools[tool]
    return await made(ctx, **made.decode(arguments))


async def refused(ctx: Context, tool: str, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await call(ctx, tool, **arguments)
    return caught.value.what


def test_reads_and_writes_may_be_repeated_and_the_others_not() -> None:
    assert {name: tool.replay for name, tool in coding_tools.tools.items()} == {
        "read": "safe", "write": "safe", "edit": "unsafe", "bash": "unsafe",
    }  # fmt: skip


async def test_what_was_written_is_read(ctx: Context, tmp_path: Path) -> None:
    assert await call(ctx, "write", path="a/b.txt", content="one\ntwo\n") == "created a/b.txt (8 bytes)"
    assert await call(ctx, "write", path="a/b.txt", content="1\n2") == "replaced a/b.txt (3 bytes)"
    assert await call(ctx, "read", path="a/b.txt") == "1\n2"
    assert (tmp_path / "a/b.txt").read_bytes() == b"1\n2"


async def test_a_long_file_is_read_in_parts_that_add_up(ctx: Context, tmp_path: Path) -> None:
    lines = [f"line {number} " + "x" * (number % 90) for number in range(6_000)]
    (tmp_path / "f").write_text("\n".join(lines))
    read: list[str] = []
    while True:
        part = (await call(ctx, "read", path="f", offset=len(read) + 1)).split("\n")
        if not part[-1].startswith("[lines"):
            break
        assert part[-1].endswith(f"offset={len(read) + len(part)}]")
        read += part[:-1]
    assert read + part == lines


async def test_a_part_in_the_middle_is_read(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\r\nc\nd\n")
    text = await call(ctx, "read", path="f", offset=2, limit=2)
    assert text == "b\nc\n[lines 2 to 3 of a file of 9 bytes; go on with offset=4]"
    assert await call(ctx, "read", path="f", offset=3) == "c\nd"
    assert "only 4 lines" in await refused(ctx, "read", path="f", offset=5)


async def test_long_lines_are_cut_between_characters_and_the_next_line_is_found(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("é" * 3_000_000 + "\nnext\n" + "z" * 2_000)
    first, second, third = (await call(ctx, "read", path="f")).split("\n")
    assert first == "é" * 1_000 + "[… cut: the line has 6,000,000 bytes]"
    assert (second, third) == ("next", "z" * 2_000)


async def test_what_is_no_text_is_refused_with_its_size(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\x7fELF\0\0" + b"x" * 2_000)
    assert "binary file of 2,006 bytes" in await refused(ctx, "read", path="f")
    assert "binary" in await refused(ctx, "edit", path="f", old_text="ELF", new_text="x")
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in await refused(ctx, "read", path="pipe")


async def test_errors_say_what_is_wrong(ctx: Context, tmp_path: Path) -> None:
    assert "does not exist" in await refused(ctx, "read", path="nothing")
    assert "does not exist" in await refused(ctx, "edit", path="nothing", old_text="a", new_text="b")
    assert "is a folder" in await refused(ctx, "read", path=".")
    assert "is a folder" in await refused(ctx, "write", path=".", content="x")
    assert "NUL" in await refused(ctx, "write", path="a\0b", content="x")
    assert "too long" in await refused(ctx, "write", path="x" * 300, content="x")
    (tmp_path / "empty").touch()
    assert await call(ctx, "read", path="empty") == "[the file is empty]"


async def test_an_edit_keeps_everything_else_whatever_its_encoding(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfcaf\xe9\r\nold\r\nend")
    result = await call(ctx, "edit", path="f", old_text="old\nend", new_text="nü\nend")
    assert result.content == "changed f at line 2"
    assert (tmp_path / "f").read_bytes() == b"\xef\xbb\xbfcaf\xe9\r\nn\xc3\xbc\r\nend"


async def test_a_refused_edit_changes_nothing(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\na\n")
    assert "lines 1, 2" in await refused(ctx, "edit", path="f", old_text="a", new_text="b")
    assert (tmp_path / "f").read_text() == "a\na\n"


async def test_edits_of_one_file_at_once_lose_nothing(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"<{number}>\n" for number in range(30)))
    (tmp_path / "link").symlink_to("f")
    await asyncio.gather(
        *(
            call(ctx, "edit", path="link" if number % 2 else "f", old_text=f"<{number}>", new_text=f"[{number}]")
            for number in range(30)
        )
    )
    assert (tmp_path / "f").read_text() == "".join(f"[{number}]\n" for number in range(30))


async def test_a_command_shows_its_output_and_its_code(ctx: Context) -> None:
    result: ToolResult = await call(ctx, "bash", command="echo out; echo err >&2; exit 3")
    assert sorted(str(result.content).split("\n")) == ["[exit code 3]", "err", "out"]
    assert result.is_error
    assert result.details == {"exit_code": 3, "signal": None, "timed_out": False, "survivors": []}
    assert sorted("".join(ctx.shown).split()) == ["err", "out"]
    quiet: ToolResult = await call(ctx, "bash", command="true")
    assert (quiet.content, quiet.is_error) == ("(no output)", False)


async def test_a_command_is_told_that_nobody_watches(ctx: Context) -> None:
    result: ToolResult = await call(ctx, "bash", command="echo $TERM $PAGER $GIT_TERMINAL_PROMPT; test -t 0; echo $?")
    assert result.content == "dumb cat 0\n1"


@pytest.mark.slow
async def test_a_command_that_takes_too_long_is_stopped_with_what_it_started(ctx: Context, tmp_path: Path) -> None:
    command = "(setsid sh -c 'while :; do echo x >> beat; sleep 0.05; done' &); echo begun; sleep 60"
    result: ToolResult = await call(ctx, "bash", command=command, timeout=1)
    assert str(result.content).startswith("begun\n[stopped after 1 s")
    assert result.is_error
    size = (tmp_path / "beat").stat().st_size
    await asyncio.sleep(0.2)
    assert (tmp_path / "beat").stat().st_size == size


@pytest.mark.slow
async def test_a_cancelled_call_leaves_no_process_and_no_file(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spills = tmp_path / "spills"
    spills.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spills))
    running = asyncio.ensure_future(call(ctx, "bash", command="head -c 300000 /dev/zero; echo > begun; sleep 60"))
    async with asyncio.timeout(10):
        while not list(spills.iterdir()) or not (tmp_path / "begun").exists():  # noqa: ASYNC110  # another process acts
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(spills.iterdir()) == []
    assert await ctx.env.reap(ctx.call_tag) == ()


@pytest.mark.slow
async def test_huge_output_is_bounded_and_kept_whole(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result: ToolResult = await call(ctx, "bash", command="head -c 50000000 /dev/zero | tr '\\0' x; echo; echo end")
    text = str(result.content)
    assert len(text) < 52_000
    assert text.endswith("\nend")
    spill = next(name for name, _ in await ctx.env.list(".") if name.startswith("perdure-output-"))
    assert f"all of it is in {tmp_path / spill} " in text
    assert (await ctx.env.stat(spill)).size == 50_000_005
    assert "cut: the line has 50,000,000 bytes" in await call(ctx, "read", path=spill)
