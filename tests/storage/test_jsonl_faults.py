"""Files of lines that are torn, damaged, foreign, newer, full or not to be written: mended, or told clearly."""

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.base.errors import InvalidValue, StorageCorrupt, TooNew
from perdure.storage.jsonl import load
from perdure.storage.jsonl.lines import header, is_whole
from perdure.storage.jsonl.repair import repair
from perdure.storage.jsonl.store import JsonlStorage
from perdure.storage.protocol import Durability
from perdure.testing.storage_conformance import Script
from tests.storage.jsonl_kit import ROOT, TEXT, as_it_is, entries, filled, lines_of, refused


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_last_commit_cut_anywhere_is_dropped_and_the_others_stay(
    tmp_path: Path, durability: Durability
) -> None:
    path = tmp_path / "s.jsonl"
    content = await filled(path, durability=durability, closed=False)
    last = content.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(content)):
        path.write_bytes(content[:end])
        assert await entries(path) == 19, end
    path.write_bytes(content)
    assert await entries(path) == 20


@pytest.mark.slow
async def test_a_file_cut_anywhere_holds_the_commits_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    content = await filled(path, entries=3)
    begun = lines_of(content)[2][1]  # header, opening and the root conversation
    for end in range(begun, len(content)):
        path.write_bytes(content[:end])
        whole = content[: content.rindex(b"\n", 0, end) + 1]
        assert await entries(path) == whole.count(b'"entries"'), end


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("tail", [b"\0" * 1024, b"\0", "é".encode()[:1], b'{"crc":"00000000","seq":', os.urandom(300)])
async def test_a_tail_that_is_no_line_is_cut_off(tmp_path: Path, tail: bytes, closed: bool) -> None:
    path = tmp_path / "s.jsonl"
    content = await filled(path, closed=closed)
    path.write_bytes(content + tail)
    assert await entries(path) == 20
    assert path.read_bytes().startswith(content)


async def test_a_torn_tail_of_whole_lines_is_kept_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    content = await filled(path, closed=False)
    path.write_bytes(content + b"somebody\nwrote here")
    assert await entries(path) == 20
    assert (tmp_path / f"s.jsonl.torn-{len(content)}").read_bytes() == b"somebody\nwrote here"


async def test_a_reader_leaves_a_torn_tail_to_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    content = await filled(path, closed=False)
    path.write_bytes(content[:-7])
    reader = JsonlStorage(path, read_only=True)
    await reader.open()
    assert len(await reader.scan_entries(ROOT)) == 19
    await reader.close()
    assert path.read_bytes() == content[:-7]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "nul": lambda line: b"\0" * len(line),
    "nul inside": lambda line: line[:30] + b"\0" * 20 + line[50:],
    "one bit": lambda line: line[:60] + bytes([line[60] ^ 1]) + line[61:],
    "gone": lambda line: b"",
    "twice": lambda line: line + line,
    "cut": lambda line: line[: len(line) // 2] + b"\n",
    "joined": lambda line: line[:-1],
    "edited": lambda line: line.replace(b'"entries"', b'"Entries"'),
    "space": lambda line: line.replace(b',"entries"', b', "entries"'),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("durability", "closed"), [("power", True), ("power", False), ("process", True), ("process", False)]
)
async def test_damage_in_the_middle_is_refused_with_its_offset_and_a_way_out(
    tmp_path: Path, damage: str, durability: Durability, closed: bool
) -> None:
    path = tmp_path / "s.jsonl"
    content = await filled(path, durability=durability, closed=closed)
    start, end = lines_of(content)[10]  # behind header, opening and the root: the 8th entry
    path.write_bytes(content[:start] + DAMAGE[damage](content[start:end]) + content[end:])
    damaged = path.read_bytes()
    error = await refused(path, StorageCorrupt)
    assert isinstance(error, StorageCorrupt)
    assert error.offset == (end if damage == "twice" else start)
    assert "repair" in error.hint
    whole = 8 if damage == "twice" else 7
    repaired = repair(path, tmp_path / "repaired.jsonl")
    assert (repaired.seq, repaired.offset) == (1 + whole, error.offset)
    assert path.read_bytes() == damaged
    assert await entries(tmp_path / "repaired.jsonl") == whole
    assert repaired.rest is not None
    assert repaired.lost_seqs[-1] == 21
    assert f"19 {TEXT}" in as_it_is(Path(repaired.rest)).decode()


async def test_a_repaired_store_uses_no_id_and_no_epoch_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    await filled(path)
    for _ in range(3):
        store = JsonlStorage(path)
        old = await store.open()
        await store.close()
    content = path.read_bytes()
    start, end = lines_of(content)[10]
    path.write_bytes(content[:start] + b"\0" * (end - start) + content[end:])
    repair(path, tmp_path / "new.jsonl")
    store = JsonlStorage(tmp_path / "new.jsonl")
    head = await store.open()
    assert head.epoch > old.epoch
    assert head.next_id == old.next_id
    await store.close()


async def test_a_repair_writes_over_nothing_and_refuses_what_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    content = await filled(path)
    (tmp_path / "taken").write_bytes(b"mine")
    with pytest.raises(InvalidValue):
        repair(path, tmp_path / "taken")
    with pytest.raises(InvalidValue):
        repair(path, path)
    (tmp_path / "foreign").write_bytes(b"hello\n")
    with pytest.raises(StorageCorrupt):
        repair(tmp_path / "foreign", tmp_path / "new")
    assert path.read_bytes() == content
    assert (tmp_path / "taken").read_bytes() == b"mine"
    assert not (tmp_path / "new").exists()


async def test_a_repair_of_a_sound_file_is_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    await filled(path)
    repaired = repair(path, tmp_path / "new.jsonl")
    assert (repaired.seq, repaired.rest, repaired.lost_seqs) == (21, None, [])
    assert await entries(tmp_path / "new.jsonl") == 20


async def test_after_a_loss_of_power_holes_behind_the_last_flush_are_a_torn_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `process` the disk may hold later lines and not earlier ones; the machine's start tells it from damage."""
    path = tmp_path / "s.jsonl"
    content = await filled(path, durability="process", closed=False)
    start, end = lines_of(content)[10]
    path.write_bytes(content[:start] + b"\0" * (end - start) + content[end:])
    await refused(path, StorageCorrupt)
    (tmp_path / "boot_id").write_text("another start\n")
    monkeypatch.setattr(load, "BOOT_ID", str(tmp_path / "boot_id"))
    assert await entries(path) == 7
    assert f"19 {TEXT}".encode() in (tmp_path / f"s.jsonl.torn-{start}").read_bytes()


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
async def test_progress_lost_with_the_power_takes_no_flushed_commit_with_it(tmp_path: Path, lost: int) -> None:
    """Any of the lines since the last flush may be missing on the disk; what was flushed before stays."""
    path = tmp_path / "s.jsonl"
    await filled(path, closed=True)
    store = JsonlStorage(path)
    head = await store.open()
    script = Script(store, seq=head.seq, next_id=head.next_id)
    document = script.document()
    await script.commit(documents=[document], revisions=[script.base(document, b"0")])
    flushed = path.stat().st_size
    for number in range(3):
        await script.commit(progress=True, revisions=[script.delta(document, b"[%d]" % number)])
    content = path.read_bytes()
    await store.close()
    place = [each for each in lines_of(content) if each[0] >= flushed]
    hole = place[lost] if lost < 3 else (flushed, len(content))
    path.write_bytes(content[: hole[0]] + b"\0" * (hole[1] - hole[0]) + content[hole[1] :])
    again = JsonlStorage(path)
    assert (await again.open()).seq == 22 + (lost if lost < 3 else 0)
    found = await again.document(document.id)
    assert found is not None
    assert len(found.deltas) == (lost if lost < 3 else 0)
    await again.close()


@pytest.mark.parametrize(
    "content", [b"x", b"\0" * 5000, b"hello\n" * 100, b'{"a":1}\n', b"SQLite format 3\0" * 9, os.urandom(20_000)]
)
async def test_a_foreign_file_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.jsonl").write_bytes(content)
    await refused(tmp_path / "s.jsonl", StorageCorrupt)


async def test_a_store_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    content = await filled(path)
    body = header()[18:-1].replace(b'"schema":1', b'"schema":2')
    newer = b'{"crc":"%08x",%b\n' % (zlib.crc32(body), body)
    assert is_whole(newer)
    path.write_bytes(newer + content[len(header()) :] + b'{"what":"ever"}\n')
    assert "newer version" in str(await refused(path, TooNew))


@pytest.mark.parametrize("length", [0, 1, 20, len(header()) - 1])
async def test_a_creation_cut_short_is_completed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(header()[:length])
    with pytest.raises(StorageCorrupt):
        await JsonlStorage(path, read_only=True).open()
    store = JsonlStorage(path)
    assert (await store.open()).epoch == 1
    await store.close()
    assert path.read_bytes().startswith(header())
