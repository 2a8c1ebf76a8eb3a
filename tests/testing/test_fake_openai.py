"""The fake server, as another process."""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from perdure.models.messages import Message, Text, ToolCall, ToolResultMessage, UserMessage
from perdure.models.protocol import Finished, ModelRequest
from perdure.models.provider import ProviderModels
from perdure.testing.fake_openai import FakeOpenAI
from perdure.testing.fake_turns import by_progress

USER = {"role": "user", "content": "hi"}


def post(base_url: str, body: object) -> tuple[int, bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked = urllib.request.Request(f"{base_url}/chat/completions", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked) as got:
            return got.status, got.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def asks(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": list(messages)}


def calls(*ids: str, arguments: str = "{}") -> dict[str, Any]:
    made = [{"id": one, "type": "function", "function": {"name": "t", "arguments": arguments}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


WRONG: dict[str, object] = {
    "no JSON": b"{",
    "no UTF-8": b'{"model": "\xff"}',
    "no messages": {"model": "m", "stream": True},
    "not streamed": {"model": "m", "messages": [USER]},
    "half a character": asks({"role": "user", "content": "\ud83d"}),
    "begins with the model": asks({"role": "assistant", "content": "hi"}, USER),
    "no result": asks(USER, calls("1"), USER),
    "an orphan": asks(USER, result("1")),
    "out of order": asks(USER, calls("1", "2"), result("2"), result("1")),
    "an id twice": asks(USER, calls("1"), result("1"), calls("1"), result("1")),
    "broken arguments": asks(USER, calls("1", arguments='{"x":'), result("1")),
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_it_refuses_what_a_strict_provider_refuses(body: object) -> None:
    with FakeOpenAI([{"text": "fine"}]) as server:
        assert post(server.base_url, body)[0] == 400
        assert post(server.base_url, asks(USER))[0] == 200


def test_the_stream_ends_with_usage_and_done() -> None:
    with FakeOpenAI([{"text": "hello"}]) as server:
        status, data = post(server.base_url, {**asks(USER), "stream_options": {"include_usage": True}})
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line]
    assert status == 200
    assert lines[-1] == "[DONE]"
    assert json.loads(lines[-2])["usage"] == {"total_tokens": 110, "prompt_tokens": 100, "completion_tokens": 10}
    assert server.usage == {"prompt_tokens": 100, "completion_tokens": 10}


def test_only_the_right_key_is_let_in() -> None:
    with FakeOpenAI([{"text": "hello"}], key="secret") as server:
        assert post(server.base_url, asks(USER))[0] == 401


def test_by_progress_a_failing_turn_delays_the_next_one() -> None:
    with FakeOpenAI(by_progress([{"fault": "rate_limit"}, {"text": "one"}, {"text": "two"}])) as server:
        statuses = [post(server.base_url, asks(USER))[0] for _ in range(3)]
        later = post(server.base_url, asks(USER, {"role": "assistant", "content": "one"}, USER))
    assert statuses == [429, 200, 200]
    assert b"two" in later[1]


@pytest.mark.slow
async def test_another_process_serves_a_script_from_a_file(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"by": "progress", "turns": [{"calls": [{"name": "a"}]}, {"text": "done"}]}))
    command = [sys.executable, "-m", "perdure.testing.fake_openai", "--port", "0", "--script", str(script)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environ)
    try:
        assert process.stdout is not None
        base_url = (await process.stdout.readline()).decode().strip()
        async with ProviderModels(base_url=base_url, environ={}) as models:
            model = models.model("openai:m")
            first = [event async for event in model.stream(ModelRequest([UserMessage("hi")]))][-1]
            assert isinstance(first, Finished)
            assert first.message.content == [ToolCall("call_0", "a", {})]
            history: list[Message] = [UserMessage("hi"), first.message, ToolResultMessage("call_0", "a", "ok")]
            last = [event async for event in model.stream(ModelRequest(history))][-1]
            assert isinstance(last, Finished)
            assert last.message.content == [Text("done")]
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 10) == 0
