"""Whole runs over the wires of the providers, against servers that refuse what the real ones refuse."""

import base64
from pathlib import Path
from typing import Any

import pytest

from perdure import Extension, Registry, Text, ToolContext, ToolResult, Unanswered
from perdure.models.messages import AssistantMessage, ToolResultMessage
from perdure.testing.fake_anthropic import FakeAnthropic, hidden, signed
from perdure.testing.fake_google import FakeGoogle
from perdure.testing.fake_openai import FakeOpenAI
from tests.harness.wires import MODELS, SERVERS, WIRES, asked, grows, opened, turns_of

pytestmark = pytest.mark.slow  # each opens servers and clients

ROUND: dict[str, Any] = {
    "redacted": "kept from you",
    "thinking": "the sun, then the hour",
    "text": "Let me look.",
    "calls": [{"name": "weather", "arguments": {"city": "Graz"}, "id": "w1"}, {"name": "clock", "id": "c1"}],
}
BUDGETED = {"anthropic": "anthropic:claude-haiku-4-5"}
"""A model whose thinking is a budget: stricter about what its turns begin with."""

DONE: dict[str, Any] = {"thinking": "noon and sunny", "text": "Sunny at noon."}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_round_of_parallel_calls_survives_a_restart_and_a_fork(wire: str, tmp_path: Path) -> None:
    turns = [ROUND, DONE, {"text": "Still."}, {"text": "Forked."}]
    with SERVERS[wire](turns) as server:
        async with opened(tmp_path / "a.db", {wire: server}, model=MODELS[wire], thinking="low") as (_, root):
            assert await asked(root, "How is it?") == "Sunny at noon."
            results = [m.content for m in await root.messages() if isinstance(m, ToolResultMessage)]
            assert results == ["sunny in Graz", "noon"]
            here = (await root.entries(newest_first=True, limit=1))[0].id
        async with opened(tmp_path / "a.db", {wire: server}) as (_, root):
            assert await asked(root, "Sure?") == "Still."
            fork = await root.fork(here)
            assert await asked(fork, "Sure?") == "Forked."
        sent = [turns_of(wire, body) for body in server.requests]
        assert len(sent) == 4  # strict about pairing and signatures, it refused none
        assert grows(wire, server.requests[:3])
        assert sent[3] == sent[2]  # the fork sends what its parent sent


async def test_signatures_go_back_byte_for_byte_and_hidden_reasoning_too(tmp_path: Path) -> None:
    with FakeAnthropic([ROUND, DONE, {"text": "ok"}]) as server:
        async with opened(tmp_path / "a.db", {"anthropic": server}, model=MODELS["anthropic"]) as (_, root):
            await asked(root)
        async with opened(tmp_path / "a.db", {"anthropic": server}) as (_, root):
            await asked(root, "more")
        said = [message["content"] for message in server.requests[2]["messages"] if message["role"] == "assistant"]
    assert said[0][:2] == [
        {"type": "redacted_thinking", "data": hidden("kept from you")},
        {"type": "thinking", "thinking": "the sun, then the hour", "signature": signed("the sun, then the hour")},
    ]
    assert said[1][0]["signature"] == signed("noon and sunny")


async def test_a_broken_signature_would_have_been_refused(tmp_path: Path) -> None:
    """The strict servers tell a false signature from a true one; else the tests above would show nothing."""
    for server, where in ((FakeAnthropic([]), "signature"), (FakeGoogle([]), "thoughtSignature")):
        bad = base64.b64encode(b"x" * 32).decode()
        if where == "signature":
            block = {"type": "thinking", "thinking": "hm", "signature": bad}
            said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [block]}]
            body = {
                "model": "m",
                "max_tokens": 1,
                "stream": True,
                "messages": [*said, {"role": "user", "content": "?"}],
            }
        else:
            call = {"functionCall": {"name": "a", "args": {}}, "thoughtSignature": bad}
            back = {"functionResponse": {"name": "a", "response": {}}}
            said = [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [call]}]
            body = {"contents": [*said, {"role": "user", "parts": [back]}]}
        assert "ignature" in (server.complaint(body) or "")
        server._server.server_close()


@pytest.mark.parametrize("wire", WIRES)
async def test_usage_counts_what_was_cached_and_what_it_cost(wire: str) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 900}}
    if wire == "anthropic":
        usage["prompt_tokens_details"] = {"cached_tokens": 800, "cache_write_tokens": 100}
    with SERVERS[wire]([{"text": "hi", "usage": usage}]) as server:
        async with opened("memory:", {wire: server}, model=MODELS[wire]) as (harness, root):
            await asked(root)
            spent = await harness.usage()
            answer = (await root.messages())[-1]
    assert (spent["input"], spent["output"], spent["unpriced"]) == (1000, 20, 0)
    assert (spent["cache_read"], spent["cache_write"]) == ((800, 100) if wire == "anthropic" else (900, 0))
    assert isinstance(answer, AssistantMessage)
    assert answer.usage is not None
    assert spent["cost"] == round(answer.usage.cost or 0, 10) > 0


@pytest.mark.parametrize(
    ("wire", "fault"),
    [
        ("anthropic", {"fault": "rate_limit"}),
        ("anthropic", {"fault": "overloaded"}),
        ("anthropic", {"fault": "server_error"}),
        ("anthropic", {"text": "half of it", "cut": 1}),
        ("anthropic", {"thinking": "half a thought", "cut": 1}),
        ("anthropic", {"text": "no end mark", "no_finish": True}),
        ("anthropic", {"text": "hm", "error_in_stream": {"type": "overloaded_error", "message": "Overloaded"}}),
        ("google", {"fault": "overloaded"}),
        ("google", {"fault": "server_error"}),
        ("google", {"text": "half of it", "cut": 1}),
        ("google", {"text": "no end mark", "no_finish": True}),
        ("google", {"text": "hm", "error_in_stream": {"message": "The model is overloaded"}}),
    ],
    ids=str,
)
async def test_a_passing_failure_is_tried_again_and_the_model_never_sees_it(wire: str, fault: dict[str, Any]) -> None:
    if fault.get("fault") == "rate_limit":
        fault = {"status": 429, "error": {"type": "rate_limit_error", "message": "slow down"}}  # without a pause
    with SERVERS[wire]([fault, {"text": "fine"}]) as server:
        async with opened("memory:", {wire: server}, model=MODELS[wire]) as (_, root):
            assert await asked(root) == "fine"
    assert turns_of(wire, server.requests[0]) == turns_of(wire, server.requests[1])
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("wire", "turn", "reason", "words"),
    [
        ("anthropic", {"fault": "context_length"}, "failed", "context_too_long"),
        ("anthropic", {"fault": "too_large"}, "failed", "context_too_long"),
        ("anthropic", {"fault": "quota"}, "failed", "quota_exhausted"),
        ("anthropic", {"fault": "auth"}, "failed", "ANTHROPIC_API_KEY"),
        ("anthropic", {"fault": "not_found"}, "failed", "unknown_model"),
        ("anthropic", {"refusal": "I will not"}, "refused", "I will not"),
        ("anthropic", {"text": "cut sho", "finish": "max_tokens"}, "length", "limit"),
        ("google", {"fault": "context_length"}, "failed", "context_too_long"),
        ("google", {"fault": "auth"}, "failed", "GOOGLE_API_KEY"),
        ("google", {"fault": "not_found"}, "failed", "unknown_model"),
        ("google", {"text": "hm", "finish": "SAFETY"}, "refused", "hm"),
        ("google", {"refusal": "blocked"}, "refused", ""),
        ("google", {"text": "cut sho", "finish": "MAX_TOKENS"}, "length", "limit"),
    ],
    ids=str,
)
async def test_a_lasting_failure_ends_the_run_with_the_providers_words(
    wire: str, turn: dict[str, Any], reason: str, words: str
) -> None:
    with SERVERS[wire]([turn]) as server:
        async with opened("memory:", {wire: server}, model=MODELS[wire]) as (_, root):
            with pytest.raises(Unanswered) as caught:
                await asked(root)
    assert caught.value.reason == reason
    assert words in str(caught.value.detail)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_arguments_that_are_no_json_reach_the_model_as_a_fault_of_its_own(wire: str) -> None:
    broken = {"calls": [{"name": "weather", "arguments": '{"city": ', "id": "w1"}]}
    with SERVERS[wire]([broken, {"text": "sorry"}]) as server:
        async with opened("memory:", {wire: server}, model=MODELS[wire]) as (_, root):
            assert await asked(root) == "sorry"
            messages = await root.messages()
    assert any(isinstance(m, ToolResultMessage) and "invalid_arguments" in str(m.content) for m in messages)


async def test_a_call_that_gemini_could_not_write_is_tried_again() -> None:
    with FakeGoogle([{"calls": [{"name": "weather", "arguments": "{"}]}, {"text": "fine"}]) as server:
        async with opened("memory:", {"google": server}, model=MODELS["google"]) as (_, root):
            assert await asked(root) == "fine"


@pytest.mark.parametrize("wire", WIRES)
async def test_an_image_goes_out_from_a_person_and_from_a_tool(wire: str, tmp_path: Path) -> None:
    camera = Extension("camera")

    @camera.tool(replay="safe")
    async def photo(ctx: ToolContext) -> ToolResult:
        """Take a photo."""
        return ToolResult([Text("here it is"), await ctx.attach(PNG, name="photo.png")])

    turns = [{"calls": [{"name": "photo", "id": "p1"}]}, {"text": "both alike"}, {"text": "yes"}]
    with SERVERS[wire](turns) as server:
        store = tmp_path / "a.db"
        async with opened(store, {wire: server}, registry=Registry([camera]), model=MODELS[wire]) as (harness, root):
            picture = await harness.attach(PNG)
            assert await asked(root, [Text("Compare."), picture]) == "both alike"
        async with opened(store, {wire: server}, registry=Registry([camera])) as (_, root):
            assert await asked(root, "Sure?") == "yes"
        encoded = base64.b64encode(PNG).decode()
        urlsafe = base64.urlsafe_b64encode(PNG).decode()
        for body, times in zip(server.requests, (1, 2, 2), strict=True):
            assert str(body).count(encoded) + (str(body).count(urlsafe) if urlsafe != encoded else 0) == times
        assert grows(wire, server.requests)


async def test_a_model_without_eyes_reads_what_was_left_out() -> None:
    with FakeOpenAI([{"text": "I cannot see it"}]) as server:
        async with opened("memory:", {"openai": server}, model="openai:m") as (harness, root):
            film = await harness.attach(b"\0\0film", "video/mp4", name="cat.mp4")
            await asked(root, [Text("Watch this."), film])
    told = server.requests[0]["messages"][0]["content"][1]["text"]
    assert told.startswith("[a file named cat.mp4 (video/mp4) was attached here; this model does not take such files")


async def test_an_image_that_a_model_made_is_kept_by_reference_and_goes_back(tmp_path: Path) -> None:
    drawn = {"text": "Here.", "images": [{"data": base64.b64encode(PNG).decode()}]}
    with FakeGoogle([drawn, {"text": "Bluer."}]) as server, FakeOpenAI([{"text": "I see."}]) as other:
        both = {"google": server, "openai": other}
        bare = Registry()
        async with opened(tmp_path / "a.db", both, registry=bare, model="google:gemini-2.5-flash-image") as (
            harness,
            root,
        ):
            answer = await (await root.submit("Draw.")).wait()
            assert answer.text == "Here."
            assert await harness.file(answer.attachments[0]) == PNG
        async with opened(tmp_path / "a.db", both, registry=bare) as (_, root):
            await asked(root, "Bluer.")
            await root.configure(model="openai:gpt-5")
            await asked(root, "And you?")
        (back,) = [part for part in server.requests[1]["contents"][1]["parts"] if "inlineData" in part]
        assert base64.urlsafe_b64decode(back["inlineData"]["data"]) == PNG
    assert "an image (image/png) was made here" in str(other.requests[0]["messages"][1])


async def test_a_conversation_moves_from_provider_to_provider(tmp_path: Path) -> None:
    def script(name: str) -> Any:
        first = {**ROUND, "thinking": f"{name} begins"}
        return [first, {"thinking": f"{name} thought", "text": f"{name} done"}, {"text": f"{name} again"}]

    with FakeAnthropic(script("a")) as a, FakeGoogle(script("g")) as g, FakeOpenAI(script("o")) as o:
        servers = {"anthropic": a, "google": g, "openai": o}
        store = tmp_path / "a.db"
        async with opened(store, servers, model=MODELS["anthropic"]) as (_, root):
            assert await asked(root) == "a done"
        for wire in ("google", "openai", "anthropic"):
            async with opened(store, servers) as (_, root):
                await root.configure(model=MODELS[wire])
                assert await asked(root, "and you?") == ("a again" if wire == "anthropic" else f"{wire[0]} done")
        assert g.unsigned > 0  # calls that another model made have no signature of Gemini's
        last = [block for message in a.requests[-1]["messages"] for block in message["content"]]
        thoughts = [block["thinking"] for block in last if block["type"] == "thinking"]
    assert thoughts == ["a begins", "a thought"]  # its own come back, those of others stay out
    assert "o begins" in str(o.requests)
    for requests, others in ((o.requests, "ag"), (g.requests, "ao"), (a.requests, "go")):
        assert not any(f"{other} begins" in str(requests) or f"{other} thought" in str(requests) for other in others)


async def test_ids_that_one_provider_made_are_valid_for_the_others(tmp_path: Path) -> None:
    odd = {"calls": [{"name": "clock", "id": "call|1/ü:" + "x" * 90}, {"name": "clock", "id": "call|1/ü:" + "x" * 90}]}
    with FakeOpenAI([odd, {"text": "noon"}]) as o, FakeAnthropic([{"text": "noon"}]) as a:
        servers = {"openai": o, "anthropic": a}
        async with opened(tmp_path / "a.db", servers, model=MODELS["openai"]) as (_, root):
            await asked(root)
            await root.configure(model=MODELS["anthropic"])
            assert await asked(root) == "noon"
    assert len(a.requests) == 1


SWITCHES = [(one, other) for one in WIRES for other in WIRES if one != other]


@pytest.mark.parametrize(("one", "other"), SWITCHES, ids=lambda wire: str(wire))
async def test_the_provider_changes_in_the_middle_of_a_round(one: str, other: str, tmp_path: Path) -> None:
    """A tool of the round changes the model, so that the next provider reads calls that another one made."""
    extension = Extension("desk")

    @extension.tool(replay="safe")
    async def weather(ctx: ToolContext, city: str) -> str:
        """Tell the weather."""
        await ctx.conversation().configure(model=BUDGETED.get(other, MODELS[other]))
        return "sunny"

    @extension.tool(replay="safe")
    async def clock(ctx: ToolContext) -> str:
        """Tell the time."""
        return "noon"

    with SERVERS[one]([ROUND]) as first, SERVERS[other]([DONE, {"text": "Still."}]) as second:
        servers, registry = {one: first, other: second}, Registry([extension])
        store = tmp_path / "a.db"
        async with opened(store, servers, registry=registry, model=MODELS[one], thinking="low") as (_, root):
            assert await asked(root) == "Sunny at noon."
        async with opened(store, servers, registry=registry) as (_, root):
            assert await asked(root, "Sure?") == "Still."
    assert (len(first.requests), len(second.requests)) == (1, 2)
    if other == "anthropic":
        assert ["thinking" in body for body in second.requests] == [False, True]
