"""Whoever watches a command sees its output soon, and of a flood what a view can hold."""

import asyncio

from perdure.tools.live import KEPT_CHARACTERS, LiveOutput


async def test_everything_is_shown_soon_and_in_order() -> None:
    shown: list[str] = []
    with LiveOutput(shown.append) as live:
        for text in ("a", "", "b\n", "c"):
            live.add(text)
        assert shown == []
        async with asyncio.timeout(5):
            while not shown:  # noqa: ASYNC110  # a timer acts
                await asyncio.sleep(0.01)
        live.add("d")
        live.flush()
        live.flush()
    assert shown == ["ab\nc", "d"]


async def test_of_a_flood_the_newest_whole_lines_are_shown() -> None:
    shown: list[str] = []
    with LiveOutput(shown.append) as live:
        for number in range(200_000):
            live.add(f"{number}\n")
        live.flush()
    text = "".join(shown)
    assert KEPT_CHARACTERS // 2 < len(text) <= 2 * KEPT_CHARACTERS
    lines = [int(line) for line in text.split()]
    assert lines == list(range(lines[0], 200_000))


async def test_a_million_tiny_pieces_without_line_ends_keep_the_newest() -> None:
    shown: list[str] = []
    with LiveOutput(shown.append) as live:
        for _ in range(300_000):
            live.add("xy")
        live.add("z")
        live.flush()
    assert len(shown[0]) <= 2 * KEPT_CHARACTERS + 1
    assert shown[0].endswith("xyz")


async def test_nothing_is_shown_after_the_block() -> None:
    shown: list[str] = []
    with LiveOutput(shown.append) as live:
        live.add("late")
    await asyncio.sleep(0.1)
    assert shown == []
