"""What of a command's output the model sees, and where the rest is."""

import re
import tracemalloc
from pathlib import Path

import pytest

from perdure.tools.output import HEAD_BYTES, TAIL_BYTES, ShownOutput

LIMIT = HEAD_BYTES + TAIL_BYTES + 300
"""What is shown, and the notice."""


def shown(folder: Path, *chunks: bytes, spill: bool = True) -> str:
    output = ShownOutput(spill=spill, folder=str(folder))
    for chunk in chunks:
        output.add("stdout", chunk)
    return output.end()


def spilled(folder: Path) -> bytes | None:
    files = list(folder.iterdir())
    assert len(files) <= 1
    return files[0].read_bytes() if files else None


def test_short_output_is_shown_as_it_is_and_leaves_no_file(tmp_path: Path) -> None:
    assert shown(tmp_path, b"one\n", b"two") == "one\ntwo"
    assert shown(tmp_path) == ""
    assert shown(tmp_path, b"x" * (HEAD_BYTES + TAIL_BYTES)) == "x" * (HEAD_BYTES + TAIL_BYTES)
    assert spilled(tmp_path) is None


def test_long_output_shows_both_ends_the_size_and_the_file(tmp_path: Path) -> None:
    data = b"".join(b"line %d\n" % number for number in range(100_000))
    text = shown(tmp_path, *(data[at : at + 65_536] for at in range(0, len(data), 65_536)))
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 99999\n")
    assert len(text.encode()) < LIMIT
    assert f"of {len(data):,} bytes left out" in text
    assert str(next(tmp_path.iterdir())) in text
    assert spilled(tmp_path) == data
    assert all(re.fullmatch(r"line \d+|\[….*…\]", line) for line in text.splitlines())


def test_many_short_lines_are_bounded_by_lines(tmp_path: Path) -> None:
    text = shown(tmp_path, b"x\n" * 5_000)
    assert text.count("x\n") == 2_000
    assert spilled(tmp_path) == b"x\n" * 5_000


def test_one_huge_line_shows_both_ends(tmp_path: Path) -> None:
    text = shown(tmp_path, b"begin", *[b"z" * 65_536] * 100, b"end")
    assert text.startswith("beginz")
    assert text.endswith("zend")
    assert len(text.encode()) < LIMIT


@pytest.mark.slow
def test_a_million_tiny_chunks_and_200_mb_take_little_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    output = ShownOutput(spill=False)
    for _ in range(200_000):
        output.add("stdout", b"ab")
    for _ in range(1_600):
        output.add("stderr", b"q" * 65_536)
    assert len(output.end().encode()) < LIMIT
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def test_binary_output_becomes_text_that_can_be_stored(tmp_path: Path) -> None:
    text = shown(tmp_path, bytes(range(256)) * 4_000)
    text.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", text)


def test_characters_cut_between_chunks_stay_whole_in_each_stream() -> None:
    output = ShownOutput(spill=False)
    euro = "€".encode()
    assert output.add("stdout", euro[:2]) == ""
    assert output.add("stderr", euro[:1]) == ""
    assert output.add("stdout", euro[2:]) == "€"
    assert output.add("stderr", euro[1:]) == "€"
    assert output.end() == "€€"


def test_a_cut_never_splits_a_character(tmp_path: Path) -> None:
    for shift in range(12):
        text = shown(tmp_path, b"." * shift + "👩‍👩‍👧‍👦".encode() * 6_000, spill=False)
        begin, _, end = text.partition("\n[…")
        assert begin.strip(".").replace("👩‍👩‍👧‍👦", "") == ""
        assert end.partition("…]\n")[2].replace("👩‍👩‍👧‍👦", "") == ""


def test_progress_bars_and_colours_are_not_shown(tmp_path: Path) -> None:
    assert shown(tmp_path, b"10%\r50%\r100%\n\x1b[31mred\x1b[0m\n") == "100%\nred\n"


def test_without_a_file_no_path_is_told(tmp_path: Path) -> None:
    text = shown(tmp_path, b"x\n" * 5_000, spill=False)
    assert "left out here …]" in text
    assert spilled(tmp_path) is None


def test_a_disk_that_takes_no_file_does_not_end_the_call(tmp_path: Path) -> None:
    text = shown(tmp_path / "nowhere", b"x\n" * 50_000)
    assert "left out here …]" in text


def test_a_discarded_output_leaves_no_file(tmp_path: Path) -> None:
    output = ShownOutput(spill=True, folder=str(tmp_path))
    output.add("stdout", b"x" * 200_000)
    assert spilled(tmp_path) is not None
    output.discard()
    assert spilled(tmp_path) is None
