"""Settings of an orchestrator: defaults, what is refused, and which are in effect."""

import json
from pathlib import Path

import msgspec
import pytest

from perdure import InvalidValue
from perdure.subagents.config import ConfigWatch, parse_config
from perdure.subagents.paths import StateRoot


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"[]", "holds an object"), (b"null", "holds an object"), (b'{"k"', "no JSON"), (b'{"k": {"nope": 1}}', "nope"),
        (b'{"providers": {"a": {"slots": 0}}}', "slots"), (b'{"k": {"stallMs": -1}}', "stallMs"),
        (b'{"defaultModel": "x"}', "not a model"),
    ],
)  # fmt: skip
def test_r532_an_invalid_configuration_is_told_by_what_is_wrong(content: bytes, word: str) -> None:
    with pytest.raises(InvalidValue, match=word):
        parse_config(content)


def test_r530_r531_r532_settings_are_compared_by_content_and_a_broken_file_leaves_the_old_ones(tmp_path: Path) -> None:
    root = StateRoot(tmp_path)
    watch = ConfigWatch(root)
    assert watch.current.k.max_calls == 300, "a missing file means the defaults"
    root.config.write_text(json.dumps({"k": {"maxCalls": 11}, "unknown": 1}))
    assert watch.look()
    root.config.write_text(json.dumps({"k": {"maxCalls": 12}, "unknown": 1}))
    assert watch.look(), "of the same length and the same moment"
    before = watch.digest
    root.config.write_text("{")
    assert not watch.look()
    assert (watch.current.k.max_calls, watch.digest, bool(watch.problem)) == (12, before, True)
    root.config.write_text(json.dumps({"k": {"maxCalls": 13}}))
    assert watch.look()
    assert watch.problem == ""


@pytest.mark.parametrize(
    ("pools", "word"),
    [
        ({"a": []}, r"pools\.a is empty"),
        ({"a": ["x/y", "b"], "b": ["a"]}, r"pools\.a holds itself: a > b > a"),
        ({"a": ["nosuch"]}, r"pools\.a: not a model: 'nosuch'"),
    ],
)
def test_r251_r532_pools_that_lead_nowhere_name_themselves(pools: dict[str, list[str]], word: str) -> None:
    with pytest.raises(InvalidValue, match=word):
        parse_config(json.dumps({"pools": pools}).encode())


def test_r251_pools_may_hold_pools() -> None:
    pools = {f"p{n}": [f"p{n + 1}", f"p{n + 1}", "a/b"] for n in range(40)} | {"p40": ["c/d"]}
    assert parse_config(json.dumps({"pools": pools, "defaultModel": "p0"}).encode()).pools == pools


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b'{"k": {"maxCalls": NaN}}', b"[" * 100_000, b"\xff"])
def test_r532_b050_a_file_that_is_half_written_is_told_also_at_the_start(tmp_path: Path, content: bytes) -> None:
    root = StateRoot(tmp_path)
    root.config.write_bytes(content)
    watch = ConfigWatch(root)
    assert "config.json" in watch.problem
    assert watch.current.k.loss_bound == 5
    root.config.write_text('{"k": {"lossBound": 6}}')
    assert watch.look()
    before = watch.digest
    root.config.write_bytes(content)
    assert not watch.look()
    assert (watch.current.k.loss_bound, watch.digest, watch.problem != "") == (6, before, True)


def test_r530_every_number_has_the_default_that_is_documented() -> None:
    config = parse_config(b"{}")
    assert msgspec.to_builtins(config.k) == {
        "maxCalls": 300, "lossBound": 5, "checkpointMs": 10_000, "stallMs": 600_000, "progressMs": 600_000,
        "hibernateMs": 120_000, "trackerMs": 1_000, "idleExitMs": 10_000, "switchTimeoutMs": 300_000,
        "probeMs": 900_000, "eventRetentionMs": 7 * 86_400_000, "waitCheckMs": 5_000,
    }  # fmt: skip
    assert msgspec.to_builtins(config.memory) == {"reserveMb": 2048, "perChildMb": 300, "warmUpSeconds": 30.0}
    assert (config.writer_lock, config.on_quit, config.slots("any")) == ("queue", "pause", None)
