"""Handing over to oneself, and looking up what was said before."""

import asyncio
from typing import Any

import pytest

from perdure import Extension, Unanswered
from perdure.models.messages import ToolResultMessage, text_of
from perdure.models.protocol import ModelRequest
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import call, say
from perdure.tools import history_tools
from tests.agent.compacting import Counting
from tests.agent.kit import agent, ask, results, said


async def test_a_handoff_ends_the_run_and_the_agent_goes_on_from_its_note() -> None:
    turns = [call("handoff", {"note": "Two of three done."}), say("three done")]
    async with agent(turns, history_tools) as (harness, root):
        submission = await root.submit("do three things")
        with pytest.raises(Unanswered, match="reset"):
            await submission.wait()
        await root.wait_idle()
        assert await said(root) == ["Two of three done.", "Continue."]
        assert text_of((await root.messages())[-1]) == "three done"
        assert not harness.inspect()["reports"]


async def test_every_message_is_found_whatever_came_since_and_pages_go_on() -> None:
    def answer(request: ModelRequest) -> Any:
        last = text_of(request.messages[-1])
        if isinstance(request.messages[-1], ToolResultMessage) or not last.startswith("find"):
            return "fine"
        return call("search_history", {"text": last.removeprefix("find ").split("@")[0], **before(last)})

    def before(text: str) -> dict[str, int]:
        return {"before": int(text.split("@")[1])} if "@" in text else {}

    async with agent(Counting(answer, context_window=None), history_tools) as (_, root):
        await ask(root, "The password is Swordfish, " + "x" * 500 + " remember it")
        for number in range(30):
            await ask(root, f"apple {number}")
        await (await root.compact())
        await root.reset("from here")
        await ask(root, "find SWORDFISH password")
        (found,) = await results(root)
        assert "user: The password is Swordfish, xxx" in found
        assert "…" in found
        assert "to the beginning]" in found
        await root.reset()
        await ask(root, "find apple")
        (found,) = await results(root)
        lines = found.split("\n")
        assert len(lines) == 21
        assert "apple 29" in lines[1]
        await root.reset()
        await ask(root, f"find apple @{lines[-1].split('before=')[1].rstrip(']')}")
        (found,) = await results(root)
        assert "apple 0\n" in found
        assert "apple 29" not in found


async def test_searching_finds_nothing_where_nothing_is_and_never_itself() -> None:
    def answer(request: ModelRequest) -> Any:
        if isinstance(request.messages[-1], ToolResultMessage):
            return "fine"
        return [call("search_history", {"text": "pineapple"}), call("search_history", {"text": " "})]

    async with agent(Counting(answer), history_tools) as (_, root):
        for _ in range(3):
            await ask(root, "look")
        found = await results(root)
        assert {line.split("\n")[0] for line in found} == {"nothing found", "nothing to search for"}


async def test_calls_and_results_of_other_tools_are_found_too() -> None:
    extension = Extension("shop")

    @extension.tool
    async def buy(ctx: Any, fruit: str) -> str:
        """Buy."""
        return f"one {fruit} bought"

    turns = [call("buy", {"fruit": "Papaya"}), call("search_history", {"text": "papaya"}), say("done")]
    async with agent(turns, extension, history_tools) as (_, root):
        await ask(root, "go")
        found = (await results(root))[-1]
        assert 'call of buy: {"fruit":"Papaya"}' in found
        assert "result of buy: one Papaya bought" in found


async def test_a_handoff_that_was_cut_off_happens_once() -> None:
    storage, gate = MemoryStorage(), asyncio.Event()
    extension = Extension("slow")

    @extension.wrap_tool("handoff")
    async def slow(ctx: Any, arguments: Any, call_next: Any) -> Any:
        done = await call_next(arguments)
        await gate.wait()
        return done

    def answer(request: ModelRequest) -> Any:
        return "done" if text_of(request.messages[-1]) == "Continue." else call("handoff", {"note": "Halfway."})

    async with agent(Counting(answer), history_tools, extension, storage=storage) as (_, root):
        await root.submit("go")
        await settle()
    gate.set()
    async with agent(Counting(answer), history_tools, extension, storage=storage) as (harness, root):
        await harness.resume()
        await root.wait_idle()
        assert await said(root) == ["Halfway.", "Continue."]
        assert text_of((await root.messages())[-1]) == "done"
