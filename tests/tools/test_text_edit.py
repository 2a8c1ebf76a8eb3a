"""An edit changes exactly what was meant, or says what it found."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.extensions.results import ToolError
from perdure.tools.text_edit import edit


def refused(text: str, old: str, new: str = "new", *, replace_all: bool = False) -> str:
    with pytest.raises(ToolError) as caught:
        edit(text, old, new, replace_all=replace_all)
    return caught.value.what


def test_one_place_is_replaced_and_its_line_told() -> None:
    assert edit("a\nb\nc\n", "b\n", "B\nB\n") == ("a\nB\nB\nc\n", [2])


def test_everything_else_stays_byte_for_byte() -> None:
    text = "\ufeffone\r\ntwo\rthree\n\tfour  \nno end"
    assert edit(text, "three", "3").text == "\ufeffone\r\ntwo\r3\n\tfour  \nno end"
    assert edit("\ufeffx = 1", "x = 1", "x = 2").text == "\ufeffx = 2"


def test_a_file_with_crlf_keeps_it() -> None:
    assert edit("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz").text == "x\r\ny\r\nz\r\nc\r\n"
    assert edit("a\r\nb\r\n", "b", "x\ny").text == "a\r\nx\r\ny\r\n"
    assert edit("a\r\nb\r\n", "a\r\nb", "x\r\ny").text == "x\r\ny\r\n"


def test_a_file_with_mixed_ends_keeps_each() -> None:
    assert edit("a\r\nb\nc\n", "b\nc", "B\nC").text == "a\r\nB\nC\n"
    assert edit("a\r\nb\r\nc\n", "a\nb", "A\nB").text == "A\r\nB\r\nc\n"


def test_text_across_both_kinds_of_line_ends_is_found() -> None:
    assert edit("a\r\nb\nc\r\nd\n", "a\nb\nc", "x").text == "x\r\nd\n"
    assert edit("a\nb\r\nc\n", "a\r\nb\nc", "x").text == "x\n"
    assert "2 times" in refused("a\r\nb\n-\r\na\nb\r\n", "a\nb\n")


def test_text_that_repeats_itself_is_not_counted_to_its_end() -> None:
    text = " " * 3_000_000
    assert "over 1,000 times" in refused(text, " " * 3_000)
    assert edit(text, " " * 3_000, "x", replace_all=True).text == "x" * 1_000


def test_several_places_are_refused_with_their_lines() -> None:
    said = refused("x\ny\nx\nx", "x")
    assert "3 times" in said
    assert "1, 3, 4" in said
    assert "replace_all" in said


def test_places_that_overlap_are_several() -> None:
    assert "2 times" in refused("aXaXa", "aXa")
    assert edit("aXaXa", "aXa", "-", replace_all=True).text == "-Xa"


def test_a_long_list_of_lines_is_cut() -> None:
    said = refused("x\n" * 1000, "x")
    assert "1000 times" in said
    assert "988 more" in said
    assert len(said) < 400


def test_all_places_are_replaced_when_asked() -> None:
    assert edit("x\nx\ny x", "x", "z", replace_all=True) == ("z\nz\ny z", [1, 2, 3])


def test_other_white_space_is_shown_as_such() -> None:
    said = refused("def f():\n\treturn  1\n\nend\n", "def f():\n    return 1\n")
    assert "other white space" in said
    assert "     1\tdef f():\n     2\t\treturn  1" in said


def test_the_nearest_lines_are_shown_with_their_numbers() -> None:
    text = "".join(f"value_{number} = {number}\n" for number in range(50)) + "def compute_total(items):\n    pass\n"
    said = refused(text, "x = 0\ndef compute_totals(item):\n")
    assert "    51\tdef compute_total(items):" in said


def test_nothing_alike_is_said_plainly() -> None:
    assert "No line of the file is like it" in refused("aaa\nbbb\n", "zzzzzz qqqqq")
    assert "No line" in refused("", "zzz")


def test_huge_lines_make_small_messages() -> None:
    assert len(refused("ab" * 1_000_000, "ab" * 50_000 + "c")) < 1_000


def test_an_edit_without_effect_or_text_is_refused() -> None:
    assert "the same" in refused("a", "a", "a")
    assert "write" in refused("a", "")


def test_messages_never_carry_broken_text() -> None:
    refused(b"caf\xe9 au lait\n".decode("utf-8", "surrogateescape"), "cafe au lait").encode()


@given(st.text("ab\r\n", max_size=30), st.text("ab\n", min_size=1, max_size=4), st.text("xy\n", max_size=4))
def test_replacing_all_agrees_with_python_where_ends_are_plain(text: str, old: str, new: str) -> None:
    text = text.replace("\r", "")
    if old not in text or old == new:
        return
    changed = edit(text, old, new, replace_all=True)
    assert changed.text == text.replace(old, new)
    assert len(changed.lines) == text.count(old)


@pytest.mark.slow
def test_looking_for_the_nearest_line_takes_a_bounded_time() -> None:
    """Two long lines of the same few letters take milliseconds to compare, and everything else waits."""
    letters = random.Random(1)
    lines = ["".join(letters.choices("ab", k=200)) for _ in range(5_000)]
    begin = time.process_time()
    assert "nearest lines" in refused("\n".join(lines), lines[77][:150] + "c" * 10 + lines[77][160:])
    assert time.process_time() - begin < 3  # 0.2 on a quiet machine; comparing each closely takes 30
