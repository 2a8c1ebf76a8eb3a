"""Values that cannot be stored, texts that mean harm, and inputs that are huge: refused with their place, or kept as
they are; never half-stored, and never the end of a conversation."""

import math
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import pytest

from perdure import ROOT, Attachment, Document, Extension, Harness, InvalidValue, Registry, Text, ToolResult
from perdure.models.messages import ToolResultMessage, UserMessage
from perdure.session.entries import entry
from perdure.storage.memory import MemoryStorage
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import MODEL, agent, ask, results, said

HALF = "a\ud800b"
"""Text with half a surrogate pair."""
MEGABYTES = 5 * 1024 * 1024


class Box(TypedDict):
    content: Any


BoxDoc: Document[Box] = Document("test.box", Box, initial=lambda: {"content": None})


@entry("test.note", version=1)
class Note:
    text: str

    def to_model(self) -> list[UserMessage]:
        return [UserMessage(self.text)]


class Thing:
    pass


async def put(harness: Harness, value: Any) -> None:
    """Put a value into the root's box."""
    async with harness.session.transaction() as tx:
        (await tx.doc(BoxDoc, ROOT))["content"] = value


async def append(harness: Harness, note: Any) -> None:
    """Put a note into the root's transcript."""
    async with harness.session.transaction() as tx:
        tx.append_entry(ROOT, note)


REFUSED: dict[str, tuple[Any, str]] = {
    "half a pair": (HALF, ""),
    "half a pair as a key": ({HALF: 1}, ""),
    "half a pair far down": ({"a": [0, {"b/c": HALF}]}, "/a/1/b~1c"),
    "an integer that JSON readers round": (2**53, ""),
    "a negative one": ({"n": -(2**53)}, "/n"),
    "not a number": ({"n": math.nan}, "/n"),
    "infinity": ([math.inf], "/0"),
    "bytes": ({"raw": b"x"}, "/raw"),
    "a set": ([{1}], "/0"),
    "a tuple": ({"pair": (1, 2)}, "/pair"),
    "a key that is a number": ({"a": {1: 2}}, "/a"),
    "an object": ({"thing": Thing()}, "/thing"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_document_refuses_what_json_cannot_hold_and_names_the_place(name: str) -> None:
    value, path = REFUSED[name]
    async with agent(["still here"]) as (harness, root):
        before = harness.session.seq
        with pytest.raises(InvalidValue) as found:
            await put(harness, value)
        assert found.value.path == f"/content{path}"
        assert harness.session.seq == before
        assert await harness.session.snapshot(BoxDoc, ROOT) is None
        assert await ask(root) == "still here"


@pytest.mark.parametrize("name", REFUSED)
async def test_a_memo_and_details_refuse_what_json_cannot_hold(name: str) -> None:
    value, path = REFUSED[name]
    caught: list[InvalidValue] = []
    extension = Extension("keeping")

    @extension.tool
    async def keep(ctx: Any) -> str:
        """Keep."""
        for keep_it in (partial(ctx.memo, "m"), ctx.details):
            try:
                await keep_it(value)
            except InvalidValue as error:
                caught.append(error)
        return "kept nothing"

    async with agent([call("keep"), "end"], extension) as (_, root):
        assert await ask(root) == "end"
        assert await results(root) == ["kept nothing"]
    assert [error.path for error in caught] == [path, path]


GOOD = [
    "nul \0 in the middle",
    "\0",
    "😀 and 👨‍👩‍👧",
    "\u202eright to left",
    "\ufeff",
    "line\r\nline",
    "\x1b[2J",
    "﷽" * 50,
]


@pytest.mark.parametrize("text", GOOD)
async def test_every_well_formed_text_comes_back_as_it_was(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.db"
    async with agent(["one"], storage=path, instructions=text, cwd=f"/{text}") as (harness, root):
        assert await ask(root, text, request_id="a") == "one"
        async with harness.session.transaction() as tx:
            (await tx.doc(BoxDoc, ROOT))["content"] = {text: [text]}
            tx.append_entry(ROOT, Note(text))
    async with agent([], storage=path) as (harness, root):
        assert await said(root) == [text, text]
        assert await harness.session.snapshot(BoxDoc, ROOT) == {"content": {text: [text]}}
        names = await root.agent()
        assert (names.instructions, names.cwd) == (text, f"/{text}")
        assert await ask(root, text, request_id="a") == "one"


async def test_a_tool_may_say_nul_and_halves_and_the_model_reads_what_can_be_stored(tmp_path: Path) -> None:
    extension = Extension("hostile")

    @extension.tool
    async def shout(ctx: Any) -> ToolResult:
        """Shout."""
        ctx.output(f"streaming {HALF} \0 and " + "\ud83d")
        ctx.output("\ude00")
        ctx.diagnostic(HALF)
        return ToolResult([Text(f"{HALF} \0")])

    async with agent([call("shout"), "end"], extension, storage=tmp_path / "s.db") as (_, root):
        assert await ask(root) == "end"
    async with agent([], extension, storage=tmp_path / "s.db") as (_, root):
        (message,) = [m for m in await root.messages() if isinstance(m, ToolResultMessage)]
        assert message.content == [Text("a\ufffdb \0"), Text("\n\n[diagnostics]\na\ufffdb")]


SUBMITTED: list[tuple[Any, str]] = [
    (HALF, ""),
    ([Text(HALF)], "/0/text"),
    ([{"type": "text", "text": HALF}], "/0/text"),
    ([{"type": "text", "text": "x", "provider": {"n": 2**53}}], "/0/provider/n"),
    ([{"type": "text", "text": "x", "provider": {"n": math.nan}}], "/0/provider/n"),
    ([{"type": "text", "text": "x", "provider": {"raw": b"x"}}], "/0/provider/raw"),
    ([Text("x", provider={"n": {1: 2}})], "/0/provider/n"),
    ([Attachment("d", HALF)], "/0/media_type"),
    ([Thing()], "/0"),
    (Thing(), ""),
    (b"bytes", ""),
]


@pytest.mark.parametrize(("content", "path"), SUBMITTED, ids=range(len(SUBMITTED)))
async def test_an_input_that_json_cannot_hold_is_refused_with_its_place(content: Any, path: str) -> None:
    async with agent(["still here"]) as (harness, root):
        before = harness.session.seq
        with pytest.raises(InvalidValue) as found:
            await root.submit(content)
        assert found.value.path == path
        assert harness.session.seq == before
        assert await ask(root) == "still here"


@pytest.mark.parametrize("bad", [HALF, "a\0", "\x7f", "\u202e", "\ufeff", b"id", 2**53, True, ["a"]])
async def test_a_request_id_that_is_no_printable_text_is_refused(bad: Any) -> None:
    async with agent(["still here"]) as (harness, root):
        before = harness.session.seq
        with pytest.raises(InvalidValue, match="request id"):
            await root.submit("a", request_id=bad)
        assert harness.session.seq == before
        assert await ask(root) == "still here"


CONFIGURED: list[dict[str, Any]] = [
    {"instructions": HALF},
    {"cwd": HALF},
    {"model": f"scripted:{HALF}"},
    {"tools": [HALF]},
    {"extensions": [HALF]},
    {"instructions": 5},
    {"instructions": b"text"},
    {"thinking": "a lot"},
    {"tools": [5]},
    {"tools": {"a": 1}},
    {"extensions": math.nan},
]


@pytest.mark.parametrize("fields", CONFIGURED, ids=str)
async def test_an_agent_that_cannot_be_stored_is_refused_and_the_old_one_stays(fields: dict[str, Any]) -> None:
    async with agent(["still here"]) as (harness, root):
        before = harness.session.seq
        with pytest.raises(InvalidValue):
            await root.configure(**fields)
        assert harness.session.seq == before
        assert (await root.agent()).model == MODEL
        assert await ask(root) == "still here"


@pytest.mark.parametrize("fields", CONFIGURED[:4], ids=str)
async def test_a_root_that_cannot_be_stored_is_not_made(fields: dict[str, Any]) -> None:
    async with Harness.open(MemoryStorage(), models=ScriptedModel(["one"])) as harness:
        with pytest.raises(InvalidValue):
            await harness.root(**{"model": MODEL, **fields})
        assert await ask(await harness.root(model=MODEL)) == "one"


@pytest.mark.parametrize("key", [HALF, b"key", 5, ""])
async def test_a_key_of_a_conversation_is_a_text(key: Any) -> None:
    async with agent(["one"]) as (harness, root):
        answer = await (await root.submit("a")).wait()
        before = harness.session.seq
        with pytest.raises(InvalidValue):
            await root.fork(answer.entry_id, key=key)
        assert harness.session.seq == before


@entry("test.shown", version=1)
class Shown:
    """An entry whose messages are whatever `SHOWN` has at a place."""

    place: int

    def to_model(self) -> Any:
        return SHOWN[self.place]


SHOWN: list[Any] = [
    [UserMessage(HALF)],
    [UserMessage([Text("x", provider={"raw": b"x"})])],
    [UserMessage([Text("x", provider={"n": 2**53})])],
    [UserMessage(5)],  # type: ignore[arg-type]
    [Thing()],
    Thing(),
    "text",
    None,
]


@pytest.mark.parametrize("note", [Note(HALF), *map(Shown, range(len(SHOWN)))], ids=str)
async def test_an_entry_that_cannot_be_stored_is_refused(note: Any) -> None:
    async with agent(["still here"]) as (harness, root):
        before = harness.session.seq
        with pytest.raises(InvalidValue):
            await root.write(note)
        with pytest.raises(InvalidValue):
            await append(harness, note)
        assert harness.session.seq == before
        assert await ask(root) == "still here"


@pytest.mark.slow
async def test_megabytes_of_input_document_and_memo_are_kept_whole(tmp_path: Path) -> None:
    text = "é" * (MEGABYTES // 2)
    path = tmp_path / "s.db"
    extension = Extension("keeping")

    @extension.tool(replay="safe")
    async def keep(ctx: Any) -> str:
        """Keep."""
        return str(len(await ctx.memo("m", text)))

    async with agent([call("keep"), "one"], extension, storage=path) as (harness, root):
        assert await ask(root, text, request_id="a") == "one"
        assert await results(root) == [str(len(text))]
        await put(harness, text)
    async with agent([], storage=path) as (harness, root):
        assert await said(root) == [text]
        assert await harness.session.value_of(BoxDoc, ROOT) == {"content": text}
        assert await ask(root, text, request_id="a") == "one"


@pytest.mark.slow
async def test_megabytes_from_a_model_are_kept_whole(tmp_path: Path) -> None:
    text = "word " * (MEGABYTES // 5)
    extension = Extension("counting")

    @extension.tool
    async def count(ctx: Any, text: str) -> str:
        """Count."""
        return str(len(text))

    model = ScriptedModel([call("count", {"text": text}), text], chunk=256 * 1024)
    async with agent(model, extension, storage=tmp_path / "s.db") as (_, root):
        assert await ask(root) == text
        assert await results(root) == [str(len(text))]


async def test_nesting_beyond_the_bound_is_refused_and_not_a_crash() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    circle: dict[str, Any] = {}
    circle["self"] = circle
    async with agent(["still here"]) as (harness, root):
        for value in (deep, circle):
            with pytest.raises(InvalidValue, match="nested"):
                await root.submit([{"type": "text", "text": "x", "provider": {"deep": value}}])
            with pytest.raises((InvalidValue, RecursionError)):
                await put(harness, value)
        assert await ask(root) == "still here"


async def test_arguments_nested_beyond_the_bound_become_an_error_that_the_model_reads() -> None:
    extension = Extension("keeping")

    @extension.tool
    async def keep(ctx: Any, value: Any) -> str:
        """Keep."""
        return "kept"

    raw = '{"value": ' + "[" * 5000 + "]" * 5000 + "}"
    async with agent([call("keep", raw), "end"], extension) as (_, root):
        assert await ask(root) == "end"
        assert (await results(root))[0] != "kept"


async def test_what_a_harness_cannot_be_opened_with_is_refused_at_once_with_what_to_write() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"registry": [Extension("a")]}, "registry=Registry("),
        ({"registry": Extension("a")}, "registry=Registry("),
        ({"models": "openai:gpt-5"}, "harness.root(model="),
        ({"settings": {"parallel_tools": False}}, "settings=Settings("),
    ]
    for given, hint in wrong:
        with pytest.raises(InvalidValue) as refused:
            Harness.open("memory:", **given)
        assert hint in refused.value.hint


def test_a_session_that_is_not_open_yet_says_how_to_open_it() -> None:
    opening: Any = Harness.open("memory:")
    with pytest.raises(AttributeError, match="async with Harness"):
        opening.root()


async def test_what_a_program_holds_is_named_when_it_is_printed(tmp_path: Path) -> None:
    registry = Registry([Extension("ops"), Extension("shop")])
    path = tmp_path / "a.db"
    async with Harness.open(path, registry=registry, models=ScriptedModel(["hello"])) as harness:
        root = await harness.root(model=MODEL)
        submission = await root.submit("hi")
        assert f"{registry} {root}" == "Registry(['ops', 'shop']) Conversation(1)"
        assert repr(harness).startswith("Harness(")
        assert str(path) in repr(harness)
        assert repr(submission) == f"Submission({submission.id})"
