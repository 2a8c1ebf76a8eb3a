"""A torn tail is mended before anything is written behind it; a damaged middle is never read over."""

from pathlib import Path

import pytest

from perdure import Harness
from perdure.base.errors import StorageCorrupt
from perdure.storage.jsonl.repair import repair
from perdure.testing.scripted_model import ScriptedModel
from tests.agent.kit import MODEL, ask
from tests.storage.jsonl_kit import as_it_is, lines_of, put

ROUNDS = 10
"""A question and an answer each: twenty entries."""


async def talked(path: Path, *, closed: bool) -> bytes:
    """The file of a session of twenty entries; not `closed`: as it was after the last answer."""
    async with Harness.open(f"jsonl:{path}", models=ScriptedModel([f"aé{n}" for n in range(ROUNDS)])) as harness:
        root = await harness.root(model=MODEL)
        for number in range(ROUNDS):
            await ask(root, f"qé{number}")
        content = as_it_is(path)
    if not closed:
        put(path, content)
    return as_it_is(path)


async def goes_on(path: Path) -> int:
    """Open, submit, close, open again: how many of the twenty entries are there, with the two new ones behind them."""
    async with Harness.open(f"jsonl:{path}", models=ScriptedModel(["again"] * 3)) as harness:
        root = await harness.root(model=MODEL)
        await harness.resume()
        before = len(await root.entries(limit=100))
        assert await ask(root, "and now?") == "again"
    async with Harness.open(f"jsonl:{path}", models=ScriptedModel([])) as harness:
        root = await harness.root(model=MODEL)
        entries = await root.entries(limit=100)
        texts = [entry.messages.decode() for entry in entries]
        assert all(f"{'qa'[n % 2]}é{n // 2}" in text for n, text in enumerate(texts[: min(before, 2 * ROUNDS)]))
        assert "and now?" in texts[-2]
        assert "again" in texts[-1]
        assert len(await root.messages()) == len(entries)
        return before


@pytest.mark.slow
async def test_a_last_line_cut_anywhere_loses_at_most_the_last_entry(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for closed in (False, True):
        content = await talked(path, closed=closed)
        start, end = lines_of(content)[-1]
        for cut in range(start, end, 1 if closed else 7):
            put(path, content[:cut])
            assert await goes_on(path) in (2 * ROUNDS - 1, 2 * ROUNDS), cut
        path.unlink()


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("tail", [b"\0" * 1024, "é".encode()[:1]])
async def test_nuls_and_half_a_character_at_the_end_lose_nothing(tmp_path: Path, tail: bytes, closed: bool) -> None:
    path = tmp_path / "s.jsonl"
    put(path, await talked(path, closed=closed) + tail)
    assert await goes_on(path) == 2 * ROUNDS


async def test_a_cut_inside_a_character_of_the_last_commit_loses_that_commit_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    content = await talked(path, closed=False)
    put(path, content[: content.rindex("é".encode()) + 1])
    assert await goes_on(path) in (2 * ROUNDS - 1, 2 * ROUNDS)


@pytest.mark.parametrize("closed", [False, True])
async def test_a_middle_record_of_nuls_is_an_error_with_its_place_and_a_way_out(tmp_path: Path, closed: bool) -> None:
    path = tmp_path / "s.jsonl"
    content = await talked(path, closed=closed)
    at = content.index("qé5".encode())
    start, end = next(place for place in lines_of(content) if place[0] < at < place[1])
    damaged = content[:start] + b"\0" * (end - start) + content[end:]
    put(path, damaged)
    with pytest.raises(StorageCorrupt) as caught:
        await Harness.open(f"jsonl:{path}", models=ScriptedModel([]))
    assert caught.value.offset == start
    assert "repair" in caught.value.hint
    assert as_it_is(path) == damaged
    repaired = repair(path, tmp_path / "repaired.jsonl")
    assert repaired.offset == start
    assert repaired.rest is not None
    assert "aé9" in as_it_is(Path(repaired.rest)).decode()
    assert await goes_on(tmp_path / "repaired.jsonl") == 10
    assert as_it_is(path) == damaged
