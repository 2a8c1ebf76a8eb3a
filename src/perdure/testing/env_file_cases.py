"""The cases of the environment suite that touch files."""

import asyncio

import pytest

from perdure.env.errors import BadPath, BadPattern, EnvError, FileNotThere, IsFolder, NotFolder
from perdure.env.protocol import ExecutionEnv
from perdure.testing.env_suite import PATIENCE_SECONDS, EnvSuite, run

ODD_NAMES = ("with space", "-dash", "Ünïcödé", "日本語", "quote'\"", "new\nline", "back\\slash", "$(echo x)", "*")


class FileCases(EnvSuite):
    """Reading, writing, listing."""

    async def test_what_is_written_is_read_back_byte_for_byte(self, env: ExecutionEnv) -> None:
        data = bytes(range(256)) * 700
        await env.write("data", data)
        assert await env.read("data") == data

    async def test_a_read_takes_the_range_that_is_asked_for(self, env: ExecutionEnv) -> None:
        await env.write("data", b"0123456789")
        assert await env.read("data", offset=3, limit=4) == b"3456"
        assert await env.read("data", offset=8, limit=4) == b"89"
        assert await env.read("data", offset=8) == b"89"
        assert await env.read("data", offset=10, limit=4) == b""
        assert await env.read("data", offset=99) == b""
        assert await env.read("data", limit=0) == b""

    async def test_a_write_makes_missing_folders_and_replaces_the_whole_file(self, env: ExecutionEnv) -> None:
        await env.write("a/b/c", b"long content")
        await env.write("a/b/c", b"short")
        assert await env.read("a/b/c") == b"short"
        assert [name for name, _ in await env.list("a/b")] == ["c"]

    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_odd_names_are_names(self, env: ExecutionEnv, name: str) -> None:
        await env.write(name, b"x")
        assert await env.read(name) == b"x"
        assert [found for found, _ in await env.list(".")] == [name]

    async def test_a_write_keeps_the_mode(self, env: ExecutionEnv) -> None:
        await env.write("script", b"#!/bin/sh\n")
        await run(env, "chmod 751 script")
        await env.write("script", b"#!/bin/sh\necho hi\n")
        assert (await run(env, "stat -c %a script; ./script"))[0] == b"751\nhi\n"

    async def test_a_write_through_a_link_keeps_the_link(self, env: ExecutionEnv) -> None:
        await run(env, "mkdir d; echo old > d/real; ln -s d/real link")
        await env.write("link", b"new")
        assert await env.read("d/real") == b"new"
        assert (await run(env, "readlink link"))[0] == b"d/real\n"
        assert (await env.resolve("link")).endswith("/d/real")

    async def test_stat_tells_kind_and_size(self, env: ExecutionEnv) -> None:
        await env.write("d/f", b"12345")
        await run(env, "ln -s nowhere broken; mkfifo pipe")
        stat = await env.stat("d/f")
        assert (stat.kind, stat.size) == ("file", 5)
        assert (await env.stat("d")).kind == "directory"
        assert (await env.stat("broken")).kind == "link"
        assert (await env.stat("pipe")).kind == "other"

    async def test_a_listing_is_sorted_and_does_not_follow_links(self, env: ExecutionEnv) -> None:
        for name in ("b", "a", "d/x", ".hidden"):
            await env.write(name, b"")
        await run(env, "ln -s d c")
        listed = [(name, stat.kind) for name, stat in await env.list(".")]
        assert listed == [(".hidden", "file"), ("a", "file"), ("b", "file"), ("c", "link"), ("d", "directory")]

    async def test_what_cannot_be_is_told_by_the_class_of_the_error(self, env: ExecutionEnv) -> None:
        await env.write("file", b"")
        await env.write("folder/x", b"")
        with pytest.raises(FileNotThere):
            await env.read("nothing")
        with pytest.raises(FileNotThere):
            await env.stat("nothing")
        with pytest.raises(FileNotThere):
            await env.list("nothing")
        with pytest.raises(IsFolder):
            await env.read("folder")
        with pytest.raises(IsFolder):
            await env.write("folder", b"")
        with pytest.raises(NotFolder):
            await env.list("file")
        with pytest.raises(NotFolder):
            await env.read("file/below")
        with pytest.raises(NotFolder):
            await env.write("file/below", b"")

    @pytest.mark.parametrize("path", ["nul\0inside", "x" * 300])
    async def test_what_is_no_path_is_refused(self, env: ExecutionEnv, path: str) -> None:
        with pytest.raises(BadPath):
            await env.write(path, b"")
        with pytest.raises(BadPath):
            await env.read(path)
        with pytest.raises(BadPath):
            await env.stat(path)
        assert await env.list(".") == []

    async def test_a_pipe_is_no_file_and_is_neither_waited_for_nor_replaced(self, env: ExecutionEnv) -> None:
        await run(env, "mkfifo pipe")
        with pytest.raises(EnvError):
            await env.read("pipe")
        with pytest.raises(EnvError):
            await env.write("pipe", b"x")
        assert (await env.stat("pipe")).kind == "other"


class SearchCases(EnvSuite):
    """Finding files and lines."""

    async def test_a_glob_finds_files_by_their_path(self, env: ExecutionEnv) -> None:
        for name in ("a.py", "b.txt", "d/c.py", "d/e/f.py", ".git/x.py", "d/.hidden.py"):
            await env.write(name, b"")
        assert (await env.glob("*.py")).items == ("a.py",)
        assert (await env.glob("**/*.py")).items == ("a.py", "d/.hidden.py", "d/c.py", "d/e/f.py")
        assert (await env.glob("d/?.py")).items == ("d/c.py",)
        assert (await env.glob("[!a].*")).items == ("b.txt",)
        assert (await env.glob("**/d/*.py")).items == ("d/.hidden.py", "d/c.py")
        assert (await env.glob("d/**")).items == ("d/.hidden.py", "d/c.py", "d/e/f.py")
        assert (await env.glob("**/e/**/f.*")).items == ("d/e/f.py",)
        assert (await env.glob("**/*.py", under="d")).items == (".hidden.py", "c.py", "e/f.py")

    async def test_a_search_that_found_too_much_says_so(self, env: ExecutionEnv) -> None:
        for number in range(5):
            await env.write(f"{number}", b"x\nx\n")
        assert [(await env.glob("*", limit=limit)).complete for limit in (4, 5)] == [False, True]
        assert [(await env.grep("x", limit=limit)).complete for limit in (9, 10)] == [False, True]
        assert len((await env.grep("x", limit=9)).items) == 9

    async def test_grep_finds_lines_in_text_files(self, env: ExecutionEnv) -> None:
        await env.write("a.py", b"one\ntwo words\n")
        await env.write("d/b.txt", b"two:three\r\n")
        await env.write("binary", b"two\0")
        await env.write(".git/c", b"two")
        found = [(match.path, match.line, match.text) for match in (await env.grep("^t.o")).items]
        assert found == [("a.py", 2, "two words"), ("d/b.txt", 1, "two:three")]
        assert [match.path for match in (await env.grep("two", files="**/*.txt")).items] == ["d/b.txt"]
        assert [match.path for match in (await env.grep("two", under="a.py")).items] == ["a.py"]
        assert [match.path for match in (await env.grep("TWO W", ignore_case=True)).items] == ["a.py"]
        assert (await env.grep("nowhere")).items == ()

    @pytest.mark.slow
    async def test_what_git_ignores_is_left_out_when_asked_for(self, env: ExecutionEnv) -> None:
        """Only in a repository; a file that is tracked, or new and not ignored, is there; one that was deleted not."""
        for name in ("a", "lost", "new", "built/x", "sub/y", "sub/log"):
            await env.write(name, b"word\n")
        await env.write(".gitignore", b"built/\nlog\n")
        everything = ("a", "built/x", "lost", "new", "sub/log", "sub/y")
        assert tuple(match.path for match in (await env.grep("word", gitignore=True)).items) == everything
        _, _, end = await run(env, "git init -q . && git add a lost && rm lost")
        if end.code != 0:
            pytest.skip("there is no git in this environment")
        assert (await env.glob("**", gitignore=True)).items == (".gitignore", "a", "new", "sub/y")
        assert (await env.glob("*", under="sub", gitignore=True)).items == ("y",)
        found = (await env.grep("word", gitignore=True)).items
        assert [(match.path, match.line, match.text) for match in found] == [
            ("a", 1, "word"), ("new", 1, "word"), ("sub/y", 1, "word"),
        ]  # fmt: skip
        assert [match.path for match in (await env.grep("word", under="sub", gitignore=True)).items] == ["y"]
        assert [match.path for match in (await env.grep("word", under="sub/y", gitignore=True)).items] == ["y"]
        assert (await env.grep("word", files="*", gitignore=False)).items[0].path == "a"
        with pytest.raises(BadPattern):
            await env.grep("(", gitignore=True)

    async def test_a_very_long_line_is_cut(self, env: ExecutionEnv) -> None:
        await env.write("long", b"needle" + b"y" * 3_000_000 + b"\nneedle\n")
        first, second = (await env.grep("needle")).items
        assert first.text.startswith("needley")
        assert len(first.text) < 2_000
        assert (second.line, second.text) == (2, "needle")

    async def test_what_is_no_pattern_is_refused(self, env: ExecutionEnv) -> None:
        await env.write("a", b"x")
        for pattern in ("(", "two\nlines"):
            with pytest.raises(BadPattern):
                await env.grep(pattern)
        with pytest.raises(BadPattern):
            await env.glob("")
        with pytest.raises(FileNotThere):
            await env.glob("*", under="nowhere")
        with pytest.raises(FileNotThere):
            await env.grep("x", under="nowhere")


class WatchCases(EnvSuite):
    """Being told of changes."""

    @pytest.mark.slow
    async def test_every_change_after_the_beginning_is_told(self, env: ExecutionEnv) -> None:
        for name in ("kept", "changed", "gone", ".git/x"):
            await env.write(f"tree/{name}", b"1")
        async with await env.watch("tree") as watching:
            await env.write("tree/changed", b"22")
            await env.write("tree/new/file", b"1")
            await env.write("tree/.git/x", b"22")
            await run(env, "rm tree/gone")
            told: dict[str, str] = {}
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for batch in watching:
                    told |= {change.path: change.kind for change in batch}
                    if len(told) >= 3:
                        break
        assert told == {"changed": "modified", "gone": "deleted", "new/file": "added"}

    @pytest.mark.slow
    async def test_one_file_can_be_watched(self, env: ExecutionEnv) -> None:
        await env.write("file", b"1")
        async with await env.watch("file") as watching:
            await env.write("other", b"")
            await env.write("file", b"22")
            async with asyncio.timeout(PATIENCE_SECONDS):
                batch = await anext(aiter(watching))
        assert [(change.kind, change.path) for change in batch] == [("modified", "file")]

    async def test_what_is_not_there_cannot_be_watched(self, env: ExecutionEnv) -> None:
        with pytest.raises(FileNotThere):
            await env.watch("nowhere")
