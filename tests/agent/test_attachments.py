"""Files in conversations: stored once, referred to only when they are there, sent by whoever needs them."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from perdure import (
    Attachment,
    Extension,
    Harness,
    HookContext,
    InvalidValue,
    Message,
    NotFound,
    Registry,
    Text,
    ToolContext,
    ToolResult,
    UserEntry,
)
from perdure.agent.attachments import FILE_BYTES, described
from perdure.models.messages import AssistantMessage, ToolResultMessage, UserMessage
from perdure.testing.scripted_model import ScriptedModel, call, say, show
from tests.agent.kit import MODEL, agent, ask

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


async def test_a_person_shows_an_image_and_the_model_gets_its_bytes() -> None:
    model = ScriptedModel([say("a cat")])
    async with agent(model) as (harness, root):
        picture = await harness.attach(PNG, name="cat.png")
        assert picture == Attachment(hashlib.sha256(PNG).hexdigest(), "image/png", "cat.png")
        assert (await (await root.submit([Text("What is it?"), picture])).wait()).text == "a cat"
        assert await harness.file(picture) == PNG
    (message,) = model.requests[0].messages
    assert message == UserMessage([Text("What is it?"), picture])


async def test_what_nobody_stored_is_refused_at_the_commit_and_nothing_is_stored() -> None:
    ghost = Attachment("0" * 64, "image/png")
    async with agent([say("fine")]) as (_, root):
        with pytest.raises(InvalidValue, match="is not stored here"):
            await root.submit([Text("look"), ghost], request_id="one")
        assert await root.entries() == []
        assert await ask(root, "never mind", request_id="one") == "fine"  # the id stayed free


async def test_a_written_entry_that_refers_to_nothing_is_refused() -> None:
    async with agent([say("fine")]) as (_, root):
        with pytest.raises(InvalidValue, match="is not stored here"):
            await root.write(UserEntry(UserMessage([Attachment("1" * 64, "image/png")])))


async def test_while_a_run_is_open_too_it_is_refused_where_it_is_handed_in() -> None:
    gate = asyncio.Event()
    async with agent([say("one").held_by(gate), say("two")]) as (harness, root):
        first = await root.submit("go")
        ghost, picture = Attachment("1" * 64, "image/png"), await harness.attach(PNG)
        for when in ("steer", "follow_up"):
            with pytest.raises(InvalidValue, match="is not stored here"):
                await root.submit([ghost], when_busy=when)
        with pytest.raises(InvalidValue, match="is not stored here"):
            await root.write(UserEntry(UserMessage([ghost])))
        written = await root.write(UserEntry(UserMessage([picture])))
        second = await root.submit([Text("and this?"), picture])
        gate.set()
        assert [(await first.wait()).text, (await second.wait()).text] == ["one", "two"]
        assert (await written.settled()).status == "done"


async def test_a_hook_that_shows_what_is_not_stored_fails_the_request_alone() -> None:
    ext = Extension("hook")

    @ext.before_request
    async def show_ghost(ctx: HookContext, messages: list[Message]) -> list[Message]:
        return [UserMessage([Attachment("4" * 64, "image/png")])]

    async with agent([say("never")], ext) as (_, root):
        settled = await (await root.submit("go")).settled()
        assert str(settled.detail).startswith("bad_request: attachment 444444444444… is not stored here")


async def test_a_tool_gives_an_image() -> None:
    ext = Extension("camera")

    @ext.tool(replay="safe")
    async def photo(ctx: ToolContext) -> ToolResult:
        """Take a photo."""
        return ToolResult([Text("here"), await ctx.attach(PNG)])

    model = ScriptedModel([call("photo"), say("nice")])
    async with agent(model, ext) as (harness, root):
        assert await ask(root) == "nice"
        result = next(m for m in await root.messages() if isinstance(m, ToolResultMessage))
        assert result.content == [Text("here"), described(PNG)]
        assert await harness.file(described(PNG)) == PNG


async def test_a_tool_that_refers_to_nothing_is_told_so_and_the_model_goes_on() -> None:
    ext = Extension("camera")

    @ext.tool(replay="safe")
    async def photo(ctx: ToolContext) -> ToolResult:
        """Take a photo."""
        return ToolResult([Attachment("2" * 64, "image/png")])

    async with agent([call("photo"), say("a pity")], ext) as (_, root):
        assert await ask(root) == "a pity"
        result = next(m for m in await root.messages() if isinstance(m, ToolResultMessage))
        assert result.is_error
        assert "is not stored here" in str(result.content)


async def test_a_fork_sees_the_same_file() -> None:
    model = ScriptedModel([say("a cat"), say("still a cat")])
    async with agent(model) as (harness, root):
        picture = await harness.attach(PNG)
        await ask(root, [picture])  # type: ignore[arg-type]
        fork = await root.fork((await root.entries())[-1].id)
        assert await ask(fork, [Text("And now?"), picture]) == "still a cat"  # type: ignore[arg-type]
    assert str(model.requests[1].messages).count(picture.digest) == 2


def size_of(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.slow
async def test_one_image_over_fifty_turns_is_stored_once(tmp_path: Path) -> None:
    image = PNG[:8] + hashlib.shake_256(b"noise").digest(1_000_000)
    path = tmp_path / "agent.db"
    for _ in range(2):
        model = ScriptedModel(lambda request: say("seen"))
        async with Harness.open(path, models=model, registry=Registry()) as harness:
            root = await harness.root(model=MODEL)
            for _ in range(25):
                picture = await harness.attach(image)
                assert await ask(root, [Text("again"), picture]) == "seen"  # type: ignore[arg-type]
            assert await harness.file(picture) == image
    assert size_of(tmp_path) < 2_600_000  # the file, and a log not yet folded in


@pytest.mark.parametrize(
    ("content", "media_type", "expected"),
    [
        (PNG, None, "image/png"),
        (PNG, "image/jpeg", "image/png"),
        (PNG, "application/octet-stream", "application/octet-stream"),
        (b"\xff\xd8\xff\xe0", None, "image/jpeg"),
        (b"GIF89a", None, "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", None, "image/webp"),
        (b"%PDF-1.7", None, "application/pdf"),
        ("grüß".encode(), None, "text/plain"),
        (b"<svg/>", "Image/SVG+xml", "image/svg+xml"),
    ],
)
def test_the_media_type_is_what_the_bytes_are(content: bytes, media_type: str | None, expected: str) -> None:
    assert described(content, media_type).media_type == expected


@pytest.mark.parametrize(
    ("content", "media_type"),
    [(b"", "text/plain"), (b"\0\1\xff", None), (b"x", "png"), (b"x", "a/b/c"), (b"x", "te xt/plain"), ("x", None)],
)
def test_what_cannot_be_an_attachment_is_refused(content: bytes, media_type: str | None) -> None:
    with pytest.raises(InvalidValue):
        described(content, media_type)


def test_the_bound_is_told() -> None:
    with pytest.raises(InvalidValue, match="33,554,432"):
        described(bytes(FILE_BYTES + 1), "application/zip")


async def test_a_digest_that_is_not_there_is_not_found() -> None:
    async with agent([]) as (harness, _):
        with pytest.raises(NotFound):
            await harness.file("3" * 64)


async def test_an_image_that_a_model_made_is_stored_by_reference_and_stands_as_the_answer() -> None:
    model = ScriptedModel([show(PNG), say("bluer")])
    async with agent(model) as (harness, root):
        drawn = await (await root.submit("draw")).wait()
        assert (drawn.text, drawn.attachments) == ("", (described(PNG),))
        answer = (await root.messages())[-1]
        assert isinstance(answer, AssistantMessage)
        assert answer.content == [described(PNG)]
        assert await harness.file(described(PNG)) == PNG
        assert await ask(root, "bluer") == "bluer"
    assert model.requests[1].messages[1] == answer
