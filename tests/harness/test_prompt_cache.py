"""What was sent stays byte-identical at the front: else every turn pays for the whole conversation again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Extension, Registry, SectionContext, ToolContext
from perdure.models.adapter import to_settings
from perdure.models.catalog import PROVIDERS, Endpoint
from perdure.models.messages import UserMessage
from perdure.models.protocol import ModelRequest
from perdure.testing.fake_anthropic import FakeAnthropic
from perdure.testing.fake_openai import FakeOpenAI
from tests.harness.wires import MODELS, SERVERS, WIRES, asked, grows, opened, turns_of

pytestmark = pytest.mark.slow  # each opens servers and clients


def office(said: list[str], gate: asyncio.Event | None = None, reached: asyncio.Event | None = None) -> Registry:
    """A section whose text may change, and a tool that may stand still."""
    extension = Extension("office")

    @extension.section("rules")
    async def rules(ctx: SectionContext) -> str:
        return said[0]

    @extension.tool(replay="safe")
    async def look(ctx: ToolContext, where: str) -> str:
        """Look somewhere."""
        if reached is not None and gate is not None:
            reached.set()
            await gate.wait()
        return f"nothing at {where}"

    return Registry([extension])


def calls(number: int) -> dict[str, Any]:
    """A turn with two calls."""
    made = [{"name": "look", "arguments": {"where": f"{number}{side}"}, "id": f"{number}{side}"} for side in "lr"]
    return {"thinking": f"thought {number}", "text": f"Looking {number}.", "calls": made}


@pytest.mark.parametrize("wire", WIRES)
async def test_each_request_begins_with_the_whole_of_the_one_before(wire: str, tmp_path: Path) -> None:
    """Over tool rounds, a cut answer, a steer in the middle of a round, and a restart."""
    gate, reached = asyncio.Event(), asyncio.Event()
    turns = [
        {"text": "Good morning."},
        calls(1),
        {"text": "half of it", "cut": 1},
        calls(2),
        {"text": "Nothing anywhere."},
        calls(3),
        {"thinking": "hm", "text": "Still nothing."},
        {"text": "As before."},
    ]
    store = tmp_path / "a.db"
    with SERVERS[wire](turns) as server:
        async with opened(store, {wire: server}, registry=office(["Be kind."]), model=MODELS[wire]) as (_, root):
            await asked(root, "Hello")
            assert await asked(root, "Look around") == "Nothing anywhere."
        registry = office(["Be kind."], gate, reached)
        async with opened(store, {wire: server}, registry=registry) as (_, root):
            looking = await root.submit("Once more")
            async with asyncio.timeout(10):
                await reached.wait()
            steer = await root.submit("And under the table", when_busy="steer")
            gate.set()
            assert (await looking.wait()).text == "Still nothing."
            assert (await steer.wait()).text == "Still nothing."
        async with opened(store, {wire: server}, registry=registry) as (_, root):
            assert await asked(root, "Sure?") == "As before."
    assert len(server.requests) == len(turns)
    assert grows(wire, server.requests)
    assert "under the table" in turns_of(wire, server.requests[6])[-1]


@pytest.mark.parametrize(
    ("wire", "model"),
    [("openai", "openai:gpt-5"), ("anthropic", "anthropic:claude-opus-5")],
    ids=["openai", "anthropic"],
)
async def test_a_changed_section_goes_to_its_place_where_the_model_takes_that(
    wire: str, model: str, tmp_path: Path
) -> None:
    said = ["Be kind."]
    store = tmp_path / "a.db"
    options: dict[str, Any] = {"registry": office(said), "system_updates": [wire]}
    with SERVERS[wire]([{"text": "one"}, calls(1), {"text": "two"}, {"text": "three"}]) as server:
        async with opened(store, {wire: server}, model=model, **options) as (_, root):
            await asked(root, "Hello")
            said[0] = "Be brief."
            await asked(root, "Look")
        async with opened(store, {wire: server}, **options) as (_, root):
            await asked(root, "And?")
        bodies = server.requests
    assert grows(wire, bodies)
    assert "Be brief." in str(bodies[1]["messages"])
    assert "Be kind." in json.dumps(bodies[3].get("system") or bodies[3]["messages"][0])


async def test_a_model_that_takes_no_changes_gets_the_prompt_of_now_and_the_rest_stays(tmp_path: Path) -> None:
    said = ["Be kind."]
    with FakeAnthropic([{"text": "one"}, {"text": "two"}]) as server:
        models = {"anthropic": server}
        async with opened(tmp_path / "a.db", models, registry=office(said), model=MODELS["anthropic"]) as (_, root):
            await asked(root, "Hello")
            said[0] = "Be brief."
            await asked(root, "Again")
        first, second = server.requests
    assert [block["text"] for block in second["system"]] == ["Be brief."]
    assert turns_of("anthropic", second)[1:2] == turns_of("anthropic", first)[1:]


async def test_anthropic_is_told_where_to_cache(tmp_path: Path) -> None:
    with FakeAnthropic([{"text": "one"}, calls(1), {"text": "two"}]) as server:
        models = {"anthropic": server}
        registry = office(["Be kind."])
        async with opened(tmp_path / "a.db", models, registry=registry, model=MODELS["anthropic"]) as (_, root):
            await asked(root, "Hello")
            await asked(root, "Look")
    for body in server.requests:  # tools, prompt, and whatever the conversation ends with
        assert "cache_control" in body["tools"][-1]
        assert "cache_control" in body["system"][-1]
        assert "cache_control" in body
        assert "cache_control" not in str(body["messages"])


async def test_a_conversation_keeps_one_session_id_and_another_has_its_own(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with FakeOpenAI([{"text": "one"}, {"text": "two"}, {"text": "three"}]) as server:
        async with opened(store, {"openai": server}, model=MODELS["openai"]) as (_, root):
            await asked(root)
        async with opened(store, {"openai": server}) as (_, root):
            await asked(root)
            fork = await root.fork((await root.entries())[0].id)
            await asked(fork)
    ids = [headers["x-session-id"] for headers in server.headers]
    assert ids[0] == ids[1] != ids[2]


def test_at_its_own_address_openai_gets_the_cache_key_and_users_options_win() -> None:
    def settings(provider: str, **options: Any) -> dict[str, Any]:
        request = ModelRequest([UserMessage("hi")], session_id="perdure-1", options=options)
        return dict(to_settings(request, Endpoint(PROVIDERS[provider], "m")))

    assert settings("openai")["openai_prompt_cache_key"] == "perdure-1"
    assert settings("openai", openai_prompt_cache_key="mine")["openai_prompt_cache_key"] == "mine"
    assert settings("openrouter")["extra_headers"] == {"x-session-id": "perdure-1"}
    headers = {"x-session-id": "mine", "x-more": "1"}
    assert settings("openrouter", extra_headers=headers)["extra_headers"] == headers
    assert "extra_headers" not in settings("anthropic")
