"""Forks as a program makes them: at any entry it sees, without copying, each with its own agent, work and usage."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import ConversationId, EntryId, Extension, Harness, NotFound, Remove, Usage
from perdure.agent.pairing import NO_RESULT, check_pairing
from perdure.models.messages import AssistantMessage, ToolCall, ToolResultMessage, text_of
from perdure.storage.memory import MemoryStorage
from perdure.storage.open import open_storage
from perdure.testing.scripted_model import ScriptedModel, call, say
from tests.agent.kit import Gate, agent, ask, results, said


def echo(request: Any) -> Any:
    """Answers with what was said last, and reports usage."""
    last = [text_of(message) for message in request.messages][-1]
    return say(f"re: {last}", usage=Usage(input=100, output=10))


async def entry_of(conversation: Any, text: str) -> EntryId:
    """The entry that holds the text."""
    for entry in await conversation.entries(limit=1000):
        if text.encode() in entry.messages:
            return EntryId(entry.id)
    raise AssertionError(text)


async def test_a_fork_begins_at_any_entry_and_both_go_on_by_themselves() -> None:
    async with agent(ScriptedModel(echo)) as (_, root):
        for text in "abc":
            await ask(root, text)
        entries = await root.entries()
        for count, entry in enumerate(entries, 1):
            fork = await root.fork(entry.id)
            assert [one.id for one in await fork.entries()] == [one.id for one in entries[:count]]
        fork = await root.fork(await entry_of(root, '"re: b"'))
        await asyncio.gather(ask(fork, "in the thread"), ask(root, "in the channel"))
        assert await said(fork) == ["a", "b", "in the thread"]
        assert await said(root) == ["a", "b", "c", "in the channel"]


async def test_an_entry_that_a_conversation_does_not_see_is_refused_and_nothing_is_made() -> None:
    async with agent(ScriptedModel(echo)) as (harness, root):
        await ask(root, "a")
        early = (await root.entries())[-1].id
        await ask(root, "b")
        late = (await root.entries())[-1].id
        fork = await root.fork(early)
        await ask(fork, "c")
        mine = (await fork.entries())[-1].id
        before = harness.session.seq
        for conversation, entry in ((fork, late), (root, mine), (root, EntryId(10**6)), (root, EntryId(-1))):
            with pytest.raises(NotFound, match=f"conversation {conversation.id} has no entry {entry}"):
                await conversation.fork(entry)
            with pytest.raises(NotFound):
                await conversation.context(entry)
        nobody = harness.agent.handle(ConversationId(12345))  # type: ignore[misc]
        with pytest.raises(NotFound, match="no conversation 12345"):
            await nobody.fork(early)
        with pytest.raises(NotFound, match="no conversation 12345"):
            await nobody.context(early)
        with pytest.raises(NotFound):
            await root.fork(mine, key="k")
        with pytest.raises(NotFound):
            await harness.conversation(key="k")
        assert harness.session.seq == before


async def test_a_fork_of_a_fork_may_begin_at_an_entry_of_the_grandparent() -> None:
    async with agent(ScriptedModel(echo)) as (_, root):
        for text in "ab":
            await ask(root, text)
        child = await root.fork((await root.entries())[-1].id)
        await ask(child, "c")
        grand = await child.fork((await child.entries())[-1].id)
        await ask(grand, "d")
        back = await grand.fork(await entry_of(root, '"re: a"'))
        assert await said(back) == ["a"]
        assert await ask(back, "e") == "re: e"
        assert await said(back) == ["a", "e"]
        assert await said(grand) == ["a", "b", "c", "d"]


@pytest.mark.slow
async def test_a_chain_of_fifty_forks_reads_to_its_root_and_stays_fast(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    model = ScriptedModel(echo)
    async with Harness.open(open_storage(path, durability="process"), models=model) as harness:
        conversation = await harness.root(model="scripted:model")
        for number in range(50):
            await ask(conversation, f"at {number}")
            conversation = await conversation.fork((await conversation.entries(newest_first=True, limit=1))[0].id)
        id = conversation.id
    async with Harness.open(open_storage(path, durability="process"), models=model) as harness:
        conversation = await harness.conversation(id)
        began = asyncio.get_running_loop().time()
        assert await said(conversation) == [f"at {number}" for number in range(50)]
        middle = await conversation.fork(await entry_of(conversation, '"at 25"'))
        assert await said(middle) == [f"at {number}" for number in range(26)]
        assert await ask(conversation, "on") == "re: on"
        assert asyncio.get_running_loop().time() - began < 1


async def test_a_fork_has_its_parents_agent_as_of_the_entry_and_its_own_usage() -> None:
    tools = Extension("tools")

    @tools.tool
    async def search(ctx: Any) -> str:
        """Search."""
        return "found"

    @tools.tool
    async def deploy(ctx: Any) -> str:
        """Deploy."""
        return "deployed"

    async with agent(ScriptedModel(echo), tools, instructions="early") as (harness, root):
        await ask(root, "a")
        at = (await root.entries())[-1].id
        await root.configure(instructions="late", thinking="high")
        await ask(root, "b")
        fork = await root.fork(at)
        names = await fork.agent()
        assert (names.model, names.instructions, names.thinking) == ("scripted:model", "early", None)
        assert (await fork.usage())["requests"] == 0
        await fork.configure(tools=Remove("deploy"))
        await ask(fork, "c")
        assert (await fork.agent()).tools == ("search",)
        assert (await root.agent()).tools == ("search", "deploy")
        assert (await fork.usage())["input"] == 100
        assert (await root.usage())["input"] == 200
        assert (await harness.usage())["input"] == 300


async def test_a_fork_inside_an_open_tool_round_reads_a_valid_context_and_goes_on() -> None:
    gate, tools, slow = Gate(), Extension("tools"), ToolCall("c1", "work", {})

    @tools.tool
    async def work(ctx: Any) -> str:
        """Work."""
        await gate.stop()
        return "worked"

    @tools.tool
    async def quick(ctx: Any) -> str:
        """Be quick."""
        return "done"

    turns: list[Any] = [[slow, ToolCall("c2", "quick", {})], say("in the fork"), say("in the parent")]
    async with agent(turns, tools) as (_, root):
        submission = await root.submit("go")
        await gate.reached.wait()
        while not any(b"tool_result" in e.messages for e in await root.entries()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        entries = await root.entries()
        round_at = next(entry.id for entry in entries if b'"work"' in entry.messages and b"tool_call" in entry.messages)
        fork = await root.fork(round_at)
        later = await root.fork(entries[-1].id)
        assert await results(fork) == [NO_RESULT, NO_RESULT]
        assert await results(later) == [NO_RESULT, "done"]
        assert (await fork.live()) is None
        assert await ask(fork, "what now?") == "in the fork"
        check_pairing(await fork.messages())
        gate.go.set()
        assert (await submission.wait()).text == "in the parent"
        assert await results(root) == ["worked", "done"]
        assert await results(fork) == [NO_RESULT, NO_RESULT], "what came later belongs to the parent"


async def test_the_same_key_gives_the_first_fork_also_after_a_restart_and_among_thousands() -> None:
    storage = MemoryStorage()
    async with agent(ScriptedModel(echo), storage=storage) as (harness, root):
        await ask(root, "a")
        at = (await root.entries())[-1].id
        first = await root.fork(at, key="slack:1")
        await ask(root, "b")
        again = await root.fork((await root.entries())[-1].id, key="slack:1")
        assert again.id == first.id
        async with harness.session.transaction() as tx:
            count = len(await tx.scan_conversations())
        assert count == 2
        for number in range(100):
            await root.fork(at, key=f"slack:2:{number}")
    async with agent(ScriptedModel(echo), storage=storage) as (harness, root):
        assert (await harness.conversation(key="slack:1")).id == first.id
        assert (await root.fork(at, key="slack:1")).id == first.id
        assert (await root.fork(at, key="slack:2:99")).id == (await harness.conversation(key="slack:2:99")).id


async def test_what_a_model_read_at_an_entry_can_be_asked_for_later() -> None:
    gate, tools = Gate(), Extension("tools")

    @tools.tool
    async def work(ctx: Any) -> str:
        """Work."""
        return "worked"

    gate.go.set()
    turns: list[Any] = ["one", call("work"), "two", "three"]
    async with agent(turns, tools, instructions="first") as (_, root):
        await ask(root, "a")
        await root.configure(instructions="second")
        await ask(root, "b")
        called = next(e.id for e in await root.entries() if b"tool_call" in e.messages and b"assistant" in e.messages)
        before = await root.context(EntryId(called))
        assert [m.content for m in before.messages if isinstance(m, ToolResultMessage)] == [NO_RESULT]
        assert dict(before.prompt.sections) == {"instructions": "second"}
        early = await root.context((await root.entries(limit=3))[-1].id)
        assert dict(early.prompt.sections) == {"instructions": "first"}
        assert [text_of(m) for m in early.messages if isinstance(m, AssistantMessage)] == ["one"]
        await root.reset()
        await ask(root, "c")
        assert await said(root) == ["c"]
        assert (await root.context(EntryId(called))).messages == before.messages
        now = await root.context()
        assert now.messages == await root.messages()
        assert now == await root.context((await root.entries(newest_first=True, limit=1))[0].id)
        fork = await root.fork(called)
        assert await said(fork) == ["a", "b"], "a fork from before a new beginning does not see it"
