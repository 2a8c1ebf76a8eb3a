"""What a running tool shows: bounded, whole, and stored at a bearable pace."""

import asyncio
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.agent.output import MAX_BYTES, MAX_LINES, SLACK_BYTES, Mode, OutputBuffer, Throttle
from perdure.base import delta
from perdure.testing.clock import FakeClock, settle


def kept(*chunks: str | bytes, mode: Mode = "tail", max_bytes: int = MAX_BYTES, max_lines: int = MAX_LINES) -> str:
    buffer = OutputBuffer(mode=mode, max_bytes=max_bytes, max_lines=max_lines)
    for chunk in chunks:
        buffer.append(chunk)
    buffer.end()
    return buffer.text()


def test_little_output_is_kept_as_it_is() -> None:
    buffer = OutputBuffer()
    buffer.append("one\n\ttwo")
    buffer.append(b" and more\n")
    assert (buffer.text(), buffer.dropped(), buffer.notice()) == ("one\n\ttwo and more\n", (0, 0), "")


def test_the_tail_keeps_the_last_whole_lines() -> None:
    assert kept("aaaa\nbbbb\ncccc\n", max_bytes=12) == "bbbb\ncccc\n"
    assert kept("aaaa\nbbbb\ncccc\n", max_bytes=10) == "bbbb\ncccc\n"
    assert kept("aaaa\nbbbb\ncccc", max_bytes=8) == "cccc"
    assert kept("1\n2\n3\n4\n", max_lines=2) == "3\n4\n"
    assert kept("1\n2\n3\n4", max_lines=2) == "3\n4"


def test_the_head_keeps_the_first_whole_lines() -> None:
    assert kept("aaaa\nbbbb\ncccc\n", mode="head", max_bytes=12) == "aaaa\nbbbb\n"
    assert kept("aaaa\nbbbb\ncccc\n", mode="head", max_bytes=10) == "aaaa\nbbbb\n"
    assert kept("aaaa\nbbbb", mode="head", max_bytes=8) == "aaaa\n"
    assert kept("1\n2\n3\n4\n", mode="head", max_lines=2) == "1\n2\n"
    assert kept("1\n", "2", "\n", "3", mode="head", max_lines=2) == "1\n2\n"


def test_what_was_dropped_is_counted_and_told() -> None:
    buffer = OutputBuffer(max_bytes=10)
    buffer.append("aaaa\n" * 1_000)
    assert (buffer.text(), buffer.dropped()) == ("aaaa\naaaa\n", (4_990, 998))
    assert buffer.notice() == "[4,990 bytes in 998 lines before this were left out]"
    head = OutputBuffer(mode="head", max_lines=1)
    head.append("1\n2\n")
    head.append("3\n")
    assert (head.text(), head.dropped()) == ("1\n", (4, 2))
    assert "after this" in head.notice()


def test_one_line_beyond_the_limit_is_cut_and_makes_room_for_the_next_line() -> None:
    assert kept("a" * 100 + "z", max_bytes=8) == "aaaaaaaz"
    assert kept("a" * 100 + "z\n", max_bytes=8) == "aaaaaaz\n"
    assert kept("a" * 100 + "\nend\n", max_bytes=8) == "end\n"
    assert kept("a" * 100 + "\nend\n", mode="head", max_bytes=8) == "aaaaaaaa"


def test_a_fragment_of_a_line_goes_when_the_next_line_begins() -> None:
    buffer = OutputBuffer(max_bytes=8)
    buffer.append("a" * 7 + "é")
    assert buffer.text() == "a" * 6 + "é"
    buffer.append("éé\n")
    assert buffer.text() == "aééé\n"
    buffer.append("x")
    assert buffer.text() == "x"


FAMILY = "👩‍👩‍👧‍👦한국어e\u0301👍🏽🇩🇪"


@pytest.mark.parametrize("mode", ["head", "tail"])
def test_a_cut_at_any_place_leaves_whole_characters(mode: Mode) -> None:
    for limit in range(1, 90):
        text = kept(FAMILY * 3, mode=mode, max_bytes=limit)
        assert len(text.encode()) <= limit
        assert (FAMILY * 3).startswith(text) if mode == "head" else (FAMILY * 3).endswith(text)
        assert not text or (text[0] not in "\u200d\u0301🏽" and text[-1] != "\u200d")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_characters_escapes_and_line_ends_cut_by_chunks_come_out_whole(size: int) -> None:
    data = (
        f"{FAMILY}\r\n\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b(Bnext\r\n10%\r20%\r\x1b[K100%\x1b[K\r\nend\r"
    ).encode()
    chunks = [data[begin : begin + size] for begin in range(0, len(data), size)]
    assert kept(*chunks) == kept(data) == f"{FAMILY}\nred next\n100%\nend"


def test_broken_text_becomes_well_formed() -> None:
    assert kept(b"a\xff\xc3", b"(b\xe2\x82") == "a\ufffd\ufffd(b\ufffd"
    assert kept("a\ud83d", "\ude00b\ud83d") == "a😀b\ufffd"
    assert kept("\ud83d", "x\udc00") == "\ufffdx\ufffd"
    assert kept("a\0b\x07c\x7f") == "abc"


def test_an_escape_that_never_ends_does_not_hide_what_follows_for_ever() -> None:
    buffer = OutputBuffer()
    buffer.append("\x1b[")
    buffer.append("1" * 10_000)
    buffer.append("m\nend\n")
    assert buffer.text().endswith("end\n")


def test_a_line_drawn_anew_replaces_what_was_taken_of_it() -> None:
    buffer = OutputBuffer()
    value: Any = ""
    for chunk, expected in (
        ("load\n10%", "load\n10%"),
        ("\r20%", "load\n20%"),
        ("\r", "load\n20%"),
        ("\nok", "load\n20%\nok"),
    ):
        buffer.append(chunk)
        value = delta.apply(value, buffer.take_operations(""))
        assert value == buffer.text() == expected


def test_growth_is_taken_as_appends_and_a_cut_as_a_replacement() -> None:
    buffer = OutputBuffer(max_bytes=10)
    assert buffer.take_operations("/output") == []
    buffer.append("aaaa\n")
    assert buffer.take_operations("/output") == [{"op": "append", "path": "/output", "value": "aaaa\n"}]
    buffer.append("bbbb\n")
    assert buffer.take_operations("/output") == [{"op": "append", "path": "/output", "value": "bbbb\n"}]
    buffer.append("cccc\n")
    assert buffer.take_operations("/output") == [{"op": "replace", "path": "/output", "value": "bbbb\ncccc\n"}]
    assert buffer.take_operations("/output") == []


def test_a_head_that_gives_up_a_line_it_had_shown_in_part_is_taken_as_a_replacement() -> None:
    buffer = OutputBuffer(mode="head", max_bytes=10)
    buffer.append("aaaa\nbbb")
    buffer.take_operations("")
    buffer.append("bbb")
    assert buffer.take_operations("") == [{"op": "replace", "path": "", "value": "aaaa\n"}]


_PIECES = st.text(alphabet="ab\n\n\r\x1b[K\t\0é한😀\u200d\ud83d\ude00", max_size=12)
_MODES = st.sampled_from(["head", "tail"])


@pytest.mark.slow
@given(st.lists(_PIECES, max_size=12), _MODES, st.integers(1, 24), st.integers(1, 5), st.sets(st.integers(0, 12)))
@settings(max_examples=300)
def test_operations_applied_give_the_text_whenever_they_are_taken(
    pieces: list[str], mode: Mode, max_bytes: int, max_lines: int, taken: set[int]
) -> None:
    buffer = OutputBuffer(mode=mode, max_bytes=max_bytes, max_lines=max_lines)
    value: Any = ""
    for number, piece in enumerate(pieces):
        buffer.append(piece)
        if number in taken:
            value = delta.apply(value, buffer.take_operations(""))
            assert value == buffer.text()
            assert len(value.encode()) <= max_bytes
            assert len(value.splitlines()) <= max_lines
    assert delta.apply(value, buffer.take_operations("")) == buffer.text()


@pytest.mark.slow
@given(st.lists(_PIECES, max_size=12), _MODES, st.integers(1, 24), st.integers(1, 5))
@example(["😀" * 3, "\n", "a"], "tail", 7, 5)
@settings(max_examples=300)
def test_how_a_stream_was_cut_makes_no_difference(
    pieces: list[str], mode: Mode, max_bytes: int, max_lines: int
) -> None:
    whole = OutputBuffer(mode=mode, max_bytes=max_bytes, max_lines=max_lines)
    parts = OutputBuffer(mode=mode, max_bytes=max_bytes, max_lines=max_lines)
    # a line drawn anew may have been cut before it was replaced; a joiner may have lost what it joined to
    pieces = [piece.replace("\r", "").replace("\u200d", "") for piece in pieces]
    whole.append("".join(pieces))
    for piece in pieces:
        parts.append(piece)
        parts.text()
    whole.end()
    parts.end()
    assert parts.text() == whole.text()
    assert parts.dropped() == whole.dropped()


@given(st.lists(_PIECES, max_size=12))
def test_what_fits_is_the_same_however_it_was_cut(pieces: list[str]) -> None:
    assert kept(*pieces) == kept("".join(pieces))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["head", "tail"])
def test_a_huge_line_and_very_many_tiny_chunks_cost_their_size_and_little_memory(mode: Mode) -> None:
    line = b"x" * 50_000_000
    buffer = OutputBuffer(mode=mode)
    tracemalloc.start()
    try:
        started = time.perf_counter()
        buffer.append(line)
        for _ in range(50_000):
            buffer.append("a ")
        took = time.perf_counter() - started
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(buffer.text()) == MAX_BYTES
    assert buffer.dropped() == (50_100_000 - MAX_BYTES, 0)
    assert peak < 20 * (MAX_BYTES + SLACK_BYTES)
    assert took < 20


class Commits:
    """Counts commits; each takes some time and says that it wrote some bytes."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.times: list[float] = []
        self.takes = 0.0
        self.writes = 100
        self.error: Exception | None = None
        self._begin = clock.now()

    async def __call__(self) -> int:
        self.times.append(round(self.clock.now() - self._begin, 3))
        if self.takes:
            await self.clock.sleep(self.takes)
        if self.error is not None:
            raise self.error
        return self.writes


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def commits(clock: FakeClock) -> Commits:
    return Commits(clock)


async def stream(throttle: Throttle, clock: FakeClock, seconds: float, every: float = 0.01) -> None:
    for _ in range(round(seconds / every)):
        throttle.touch()
        await clock.advance(every)


async def test_a_steady_stream_is_committed_every_tenth_of_a_second(clock: FakeClock, commits: Commits) -> None:
    throttle = Throttle(clock, commits)
    await stream(throttle, clock, 1.0)
    assert 9 <= len(commits.times) <= 10
    assert all(later - earlier >= 0.0999 for earlier, later in zip(commits.times, commits.times[1:], strict=False))


async def test_what_ends_within_the_first_pause_costs_no_commit_of_its_own(clock: FakeClock, commits: Commits) -> None:
    throttle = Throttle(clock, commits)
    await stream(throttle, clock, 0.05)
    await throttle.close()
    await clock.advance(5)
    assert commits.times == []


async def test_the_last_piece_before_a_silence_is_committed(clock: FakeClock, commits: Commits) -> None:
    throttle = Throttle(clock, commits)
    throttle.touch()
    await clock.advance(30)
    assert commits.times == [0.1]
    throttle.touch()
    await clock.advance(0)
    assert commits.times == [0.1, 30.0]


async def test_slow_commits_lengthen_the_pause_up_to_a_second(clock: FakeClock, commits: Commits) -> None:
    throttle = Throttle(clock, commits)
    commits.takes = 0.05
    await stream(throttle, clock, 0.2)
    assert throttle.pause == pytest.approx(0.5)
    commits.takes = 3
    await stream(throttle, clock, 4.0)
    assert throttle.pause == 1.0
    commits.takes = 0
    await stream(throttle, clock, 4.0)
    assert throttle.pause == 0.1


async def test_large_commits_lengthen_the_pause(clock: FakeClock, commits: Commits) -> None:
    throttle = Throttle(clock, commits)
    commits.writes = 50 * 1024
    await stream(throttle, clock, 10.0)
    assert sum(commits.writes for _ in commits.times) / 10 <= Throttle.BYTES_PER_SECOND * 1.1


async def test_flush_commits_what_is_new_at_once_and_only_that(clock: FakeClock, commits: Commits) -> None:
    throttle = Throttle(clock, commits)
    throttle.touch()
    await throttle.flush()
    await throttle.flush()
    await clock.advance(5)
    assert commits.times == [0.0]


async def test_flush_waits_for_a_running_commit_and_never_overlaps_it(clock: FakeClock, commits: Commits) -> None:
    throttle = Throttle(clock, commits)
    commits.takes = 0.3
    throttle.touch()
    await clock.advance(0.2)
    throttle.touch()
    flushing = asyncio.ensure_future(throttle.flush())
    await settle()
    assert commits.times == [0.1]
    await clock.advance(0.3)
    assert commits.times == [0.1, 0.4]
    assert not flushing.done()
    await clock.advance(0.3)
    await flushing


@pytest.mark.parametrize("ends", [Throttle.flush, Throttle.close])
async def test_an_error_of_a_commit_stops_the_throttle_and_comes_out_at_the_end(
    clock: FakeClock, commits: Commits, ends: Callable[[Throttle], Any]
) -> None:
    throttle = Throttle(clock, commits)
    commits.error = OSError("the disk is gone")
    await stream(throttle, clock, 1.0)
    assert commits.times == [0.1]
    with pytest.raises(OSError, match="the disk is gone"):
        await cast(Any, ends(throttle))


async def test_a_cancelled_flush_leaves_its_commit_alone(clock: FakeClock, commits: Commits) -> None:
    throttle = Throttle(clock, commits)
    commits.takes = 0.3
    throttle.touch()
    flushing = asyncio.ensure_future(throttle.flush())
    await settle()
    flushing.cancel()
    await clock.advance(1)
    assert flushing.cancelled()
    await throttle.close()
    assert commits.times == [0.0]
    assert throttle.pause == 1.0
