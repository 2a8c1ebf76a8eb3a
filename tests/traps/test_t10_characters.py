"""Text is well-formed before it is stored, wherever it came from and wherever it was cut."""

from pathlib import Path
from typing import Any

import pytest

from perdure import Extension, Text, ToolCall
from perdure.storage.memory import MemoryStorage
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel, Turn, call, cut, say
from tests.agent.kit import agent, ask, results

LINE = "👨‍👩‍👧‍👦 한글 e\u0301 𝒳"
HALVES = LINE.encode("utf-16-be", "surrogatepass")
SPLIT = "".join(chr(int.from_bytes(HALVES[i : i + 2], "big")) for i in range(0, len(HALVES), 2))
"""The line as a provider sends it that cuts characters into their UTF-16 halves."""


def echo() -> Extension:
    extension = Extension("echo")

    @extension.tool
    async def echo(ctx: Any, text: str) -> str:
        """Say it again."""
        for unit in SPLIT:
            ctx.output(unit)
        ctx.output(b"\xff\xfe\xf0\x9f")
        ctx.diagnostic("\ud83d")
        return text + "\ud83d"

    return extension


@pytest.mark.parametrize("chunk", range(1, 12))
async def test_deltas_that_are_split_inside_a_character_are_whole_in_the_store(chunk: int) -> None:
    storage = MemoryStorage()
    model = ScriptedModel([say(SPLIT + "\ud83d"), "two"], chunk=chunk)
    async with agent(model, storage=storage) as (harness, root):
        harness.settings.progress_interval = 0
        answer = await (await root.submit("a")).wait()
        assert answer.text.encode("utf-8")
        assert await ask(root, "b") == "two"
        before = await root.messages()
    async with agent([], storage=storage) as (_, root):
        assert await root.messages() == before


@pytest.mark.parametrize("after", range(0, 24, 3))
async def test_a_stream_that_is_cut_inside_a_character_leaves_a_sound_transcript(after: int) -> None:
    model = ScriptedModel([cut(after, say(SPLIT)), "two"], chunk=1)
    async with agent(model) as (harness, root):
        harness.settings.progress_interval = 0
        harness.settings.retry = type(harness.settings.retry)(first_delay=0)
        assert await ask(root, "a") == "two"
        for entry in await root.entries():
            entry.messages.decode("utf-8")


@pytest.mark.parametrize("arguments", ['{"text": "\\ud83d"}', {"text": "\ud83d"}, {"text": SPLIT}, {"\ud83d": 1}])
@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_lone_surrogates_in_arguments_and_results_do_not_stop_the_conversation(
    arguments: Any, where: str, tmp_path: Path
) -> None:
    def store() -> Any:
        return SqliteStorage(tmp_path / "a.db") if where == "sqlite" else MemoryStorage()

    model = ScriptedModel([Turn((Text("\udc00"), ToolCall("\ud800", "echo", arguments))), "two", "three"])
    model._strict = True
    async with agent(_raw(model), echo(), storage=store()) as (harness, root):
        harness.settings.progress_interval = 0
        assert await ask(root, "a") == "two"
        assert len(await results(root)) == 1
        assert await ask(root, "b") == "three"
        await settle()


def _raw(model: ScriptedModel) -> ScriptedModel:
    """The script's deltas are made from its blocks, which cannot all be encoded: they are left out."""
    model._deltas = lambda content: []  # type: ignore[method-assign]
    return model


async def test_a_request_with_every_kind_of_character_is_valid_utf8() -> None:
    model = ScriptedModel([call("echo", {"text": LINE}), "two"])
    async with agent(model, echo()) as (_, root):
        assert await ask(root, LINE) == "two"
        (result,) = await results(root)
        assert result == f"{LINE}\ufffd\n\n[diagnostics]\n\ufffd"
