"""The fake providers of Anthropic's and Gemini's wires: they refuse what the real ones refuse."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from perdure.testing.fake_anthropic import FakeAnthropic, hidden, signed
from perdure.testing.fake_google import UNSIGNED, FakeGoogle, signed_call
from perdure.testing.fake_http import FakeServer
from perdure.testing.fake_turns import by_progress


def post(server: FakeServer, path: str, body: object, **headers: str) -> tuple[int, str]:
    asked = urllib.request.Request(
        server.address + path, json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(asked) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def claude(*messages: tuple[str, Any], **more: Any) -> dict[str, Any]:
    said = [{"role": role, "content": content} for role, content in messages]
    return {"model": "m", "max_tokens": 9, "stream": True, "messages": said, **more}


def use(*ids: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": one, "name": "t", "input": {}} for one in ids]


def back(*ids: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": one, "content": "ok"} for one in ids]


HI = ("user", "hi")
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": signed("hm")}
MARK = {"cache_control": {"type": "ephemeral"}}

WRONG_FOR_CLAUDE: dict[str, Any] = {
    "no max_tokens": {**claude(HI), "max_tokens": None},
    "not streamed": {**claude(HI), "stream": False},
    "no messages": claude(),
    "begins with the model": claude(("assistant", "hi"), HI),
    "ends with the model": claude(HI, ("assistant", "hi")),
    "no result": claude(HI, ("assistant", use("a")), ("user", "and?")),
    "results behind words": claude(HI, ("assistant", use("a")), ("user", [{"type": "text", "text": "x"}, *back("a")])),
    "an orphan": claude(HI, ("assistant", "yes"), ("user", back("a"))),
    "an id twice": claude(
        HI, ("assistant", use("a")), ("user", back("a")), ("assistant", use("a")), ("user", back("a"))
    ),
    "an id of odd letters": claude(HI, ("assistant", use("a|b")), ("user", back("a|b"))),
    "a foreign signature": claude(HI, ("assistant", [{**THOUGHT, "thinking": "hm!"}]), HI),
    "a foreign secret": claude(HI, ("assistant", [{"type": "redacted_thinking", "data": "eHg="}]), HI),
    "empty text": claude(("user", [{"type": "text", "text": " "}])),
    "an odd image": claude(("user", [{"type": "image", "source": {"media_type": "image/svg+xml", "data": ""}}])),
    "two tools of one name": claude(HI, tools=[{"name": "t"}, {"name": "t"}]),
    "too many marks": claude(HI, system=[{"type": "text", "text": "x", **MARK}] * 5),
    "a system message behind the model's": claude(HI, ("assistant", "yes"), ("system", "be brief"), HI),
    "thinking on from a turn without": claude(
        HI, ("assistant", use("a")), ("user", back("a")), thinking={"type": "enabled", "budget_tokens": 9}
    ),
}


@pytest.mark.parametrize("body", WRONG_FOR_CLAUDE.values(), ids=WRONG_FOR_CLAUDE)
def test_claude_refuses(body: dict[str, Any]) -> None:
    with FakeAnthropic([{"text": "fine"}]) as server:
        assert post(server, "/v1/messages", body)[0] == 400
        whole = claude(
            HI,
            ("assistant", [{"type": "redacted_thinking", "data": hidden("x")}, THOUGHT, *use("a", "b")]),
            ("user", back("b", "a")),
            ("system", "be brief"),
        )
        assert post(server, "/v1/messages", whole)[0] == 200


def gemini(*contents: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {"contents": [{"role": role, "parts": parts} for role, parts in contents]}


def calling(name: str, signature: bytes | None, **more: Any) -> dict[str, Any]:
    signed = {} if signature is None else {"thoughtSignature": base64.urlsafe_b64encode(signature).decode()}
    return {"functionCall": {"name": name, "args": {}, **more}, **signed}


def answering(name: str, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {}, **more}}


HELLO: tuple[str, list[dict[str, Any]]] = ("user", [{"text": "hi"}])
GOOD = signed_call("t", {})

WRONG_FOR_GEMINI: dict[str, Any] = {
    "nothing": gemini(),
    "begins with the model": gemini(("model", [{"text": "hi"}]), HELLO),
    "ends with the model": gemini(HELLO, ("model", [{"text": "hi"}])),
    "no parts": gemini(HELLO, ("model", []), HELLO),
    "empty text": gemini(("user", [{"text": ""}])),
    "no response": gemini(HELLO, ("model", [calling("t", GOOD)]), HELLO),
    "the response of another": gemini(HELLO, ("model", [calling("t", GOOD)]), ("user", [answering("u")])),
    "another id": gemini(HELLO, ("model", [calling("t", GOOD, id="a")]), ("user", [answering("t", id="b")])),
    "unsigned": gemini(HELLO, ("model", [calling("t", None)]), ("user", [answering("t")])),
    "a foreign signature": gemini(HELLO, ("model", [calling("t", b"x" * 32)]), ("user", [answering("t")])),
}


@pytest.mark.parametrize("body", WRONG_FOR_GEMINI.values(), ids=WRONG_FOR_GEMINI)
def test_gemini_refuses(body: dict[str, Any]) -> None:
    path = "/v1beta/models/gemini:streamGenerateContent?alt=sse"
    with FakeGoogle([{"text": "fine"}, {"text": "fine"}]) as server:
        assert post(server, path, body)[0] == 400
        for signature in (GOOD, UNSIGNED):
            whole = gemini(HELLO, ("model", [calling("t", signature)]), ("user", [answering("t")]))
            assert post(server, path, whole)[0] == 200
        assert server.unsigned == 1


def test_only_the_right_key_is_let_in_and_faults_keep_their_words() -> None:
    with FakeAnthropic(by_progress([{"fault": "overloaded"}, {"text": "hi"}]), key="secret") as server:
        assert post(server, "/v1/messages", claude(HI))[0] == 401
        status, words = post(server, "/v1/messages", claude(HI), **{"x-api-key": "secret"})
        assert (status, json.loads(words)["error"]["type"]) == (529, "overloaded_error")
        status, words = post(server, "/v1/messages", claude(HI), **{"x-api-key": "secret"})
        assert status == 200
        assert words.rstrip().endswith('{"type": "message_stop"}')
    assert server.usage["output_tokens"] == 10
