"""Text from outside: made well-formed, decoded in pieces, cut between characters, stripped for terminals."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.base.text import (
    CLUSTER_LIMIT,
    cut_head,
    cut_tail,
    decode_utf8,
    printable,
    stream_decoder,
    well_formed,
)

_FAMILY = "👨‍👩‍👧‍👦"
_CLUSTERS = [
    "a",
    "é",
    "e\u0301\u0323",
    _FAMILY,
    "👍🏽",
    "❤️",
    "🇦🇹",
    "🇨🇭",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "1\ufe0f\u20e3",
    "각",
    "\u1112\u1161\u11ab",
    "नि",
    "\r\n",
    "字",
    "\u1100\uac00",
]
clusters = st.lists(st.sampled_from(_CLUSTERS), max_size=8)
wild = st.text(st.characters(exclude_categories=[]) | st.sampled_from("\ud83d\ude00\u0301\u200d🇦👍a"), max_size=20)


@given(wild)
@example("\ud83d\ude00")
@example("a\ud800")
@example("\udc00\ud800b")
def test_text_becomes_well_formed_and_only_lone_halves_change(text: str) -> None:
    mended = well_formed(text)
    mended.encode()
    halves = [character for character in mended if character == "\ufffd"]
    assert len(halves) >= text.count("\ufffd")
    assert well_formed(mended) is mended
    kept = [character for character in text if not 0xD800 <= ord(character) <= 0xDFFF]
    rest = iter(mended)
    assert all(character in rest for character in kept)


def test_halves_side_by_side_become_their_character_and_lone_ones_the_replacement() -> None:
    assert well_formed("a\ud83d\ude00b") == "a😀b"
    assert well_formed("\ude00\ud83d") == "\ufffd\ufffd"
    assert well_formed("x\ud83dy") == "x\ufffdy"


@given(st.text(max_size=20), st.lists(st.integers(0, 80), max_size=5))
def test_bytes_that_come_in_pieces_give_the_text_they_came_from(text: str, places: list[int]) -> None:
    data, decoder, found, begin = text.encode(), stream_decoder(), "", 0
    for end in [*sorted(min(place, len(data)) for place in places), len(data)]:
        found += decoder.decode(data[begin:end])
        begin = end
    assert found + decoder.decode(b"", True) == text


@given(st.binary(max_size=30), st.integers(0, 30))
def test_bytes_that_are_no_utf8_are_replaced_the_same_in_pieces_and_whole(data: bytes, place: int) -> None:
    decoder = stream_decoder()
    assert decoder.decode(data[:place]) + decoder.decode(data[place:], True) == decode_utf8(data)
    decode_utf8(data).encode()


def _ends(parts: list[str]) -> set[int]:
    ends, at = {0}, 0
    for part in parts:
        at += len(part)
        ends.add(at)
    return ends


@given(clusters, st.integers(-1, 60))
def test_cuts_fall_between_visible_characters_and_keep_as_much_as_fits(parts: list[str], limit: int) -> None:
    text = "".join(parts)
    head, tail = cut_head(text, limit), cut_tail(text, limit)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head.encode()) <= max(limit, 0)
    assert len(tail.encode()) <= max(limit, 0)
    ends = _ends(parts)
    assert len(head) == max(end for end in ends if len(text[:end].encode()) <= max(limit, 0))
    assert len(text) - len(tail) == min(end for end in ends if len(text[end:].encode()) <= max(limit, 0))


@pytest.mark.parametrize("limit", range(1, 41))
def test_a_line_of_emoji_hangul_and_marks_is_cut_well_at_every_limit(limit: int) -> None:
    line = _FAMILY + "한국어" + "\u1112\u1161\u11ab" + "e\u0301" * 3 + "🇦🇹🇨🇭"
    for piece in (cut_head(line, limit), cut_tail(line, limit)):
        assert len(piece.encode()) <= limit
        assert not piece.endswith("\u200d")
        assert not piece.startswith("\u200d")
        assert not piece or not unicodedata.combining(piece[0])
        assert len([character for character in piece if "\U0001f1e6" <= character <= "\U0001f1ff"]) % 2 == 0


@given(wild.map(well_formed), st.integers(-5, 100))
def test_cuts_of_any_text_respect_the_limit_and_stay_well_formed(text: str, limit: int) -> None:
    head, tail = cut_head(text, limit), cut_tail(text, limit)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert max(len(head.encode()), len(tail.encode())) <= max(limit, 0)
    if len(text.encode()) <= limit:
        assert head == tail == text


@pytest.mark.parametrize("filler", ["\u0301", "\u200d", "🇦", "\u1160"])
def test_a_hostile_pile_of_marks_cannot_empty_a_cut(filler: str) -> None:
    text = "a" + filler * 100_000
    for piece in (cut_head(text, 3000), cut_tail(text, 3000)):
        assert 3000 - 4 * CLUSTER_LIMIT <= len(piece.encode()) <= 3000


def test_a_long_text_is_cut_without_looking_at_all_of_it() -> None:
    text = "é" * 5_000_000
    assert cut_head(text, 5) == "éé"
    assert cut_tail(text, 5) == "éé"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[?25l\x1b[2K\x1b[Hx", "x"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;1\x1b\\x", "x"),
        ("\x1b(Bx\x1b=y", "xy"),
        ("\x9b31mred\x9d0;t\x9cx", "redx"),
        ("a\x00b\x07c\x7f", "abc"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("10%\r50%\r", "50%"),
        ("\x1b]0;never ended\nnext line", "0;never ended\nnext line"),
        ("\x1b[31", ""),
        ("\x1b", ""),
        ("N\bNA\bA_\bM", "NAM"),
        ("\b\bx\n\by", "x\ny"),
        (_FAMILY + "한", _FAMILY + "한"),
        ("a\x85b", "ab"),
    ],
)
def test_terminal_text_loses_what_only_a_terminal_understands(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.sampled_from("\x1b[]()0;mPX^_\\\x07\x18\x9b\x9c\x9d\r\n\t\bab\x00é") | st.characters(), max_size=30))
def test_nothing_that_controls_a_terminal_is_left(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(character) == "Cc" and character not in "\n\t" for character in shown)
    assert printable(shown) == shown
