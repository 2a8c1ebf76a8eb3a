"""A channel and its threads: the channel is one conversation, each thread a fork at the message that it replies to."""

import asyncio
from typing import Any

from perdure import Conversation, EntryId, Extension, Harness, Registry, Remove, ToolContext, UserMessage
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, say

ops = Extension("ops")


@ops.tool(replay="safe")
async def search(ctx: ToolContext, query: str) -> str:
    """Search the logs."""
    return f"nothing about {query}"


@ops.tool
async def deploy(ctx: ToolContext, version: str) -> str:
    """Deploy a version to production."""
    return f"deployed {version}"


def answer(request: ModelRequest) -> Any:
    """Tells what it was asked here, and what it may do."""
    heard = [str(message.content) for message in request.messages if isinstance(message, UserMessage)]
    tools = ", ".join(tool.name for tool in request.tools)
    return say(f"heard {len(heard)} messages, may use {tools}; last: {heard[-1]}")


class Slack:
    """Where messages come in. Slack may deliver one twice, so each carries its own time stamp."""

    def __init__(self, channel: Conversation) -> None:
        self.channel = channel
        self.answers: dict[str, EntryId] = {}
        """Which entry answered a message: where a thread below the answer begins."""

    async def message(self, ts: str, text: str, thread_ts: str | None = None) -> str:
        """A message arrived, in the channel or in the thread below another message."""
        where = self.channel if thread_ts is None else await self.thread(thread_ts)
        submission = await where.submit(text, request_id=f"slack:{ts}")
        answered = await submission.wait()
        self.answers[ts] = answered.entry_id
        return answered.text

    async def thread(self, ts: str) -> Conversation:
        """The thread below a message: made with the first reply; the same key gives the same fork ever after."""
        thread = await self.channel.fork(self.answers[ts], key=f"slack:thread:{ts}")
        await thread.configure(tools=Remove("deploy"))  # a thread may search, but not deploy
        return thread


async def main() -> None:
    async with Harness.open("memory:", registry=Registry([ops]), models=ScriptedModel(answer)) as harness:
        slack = Slack(await harness.root(model="scripted:model"))
        print("channel:", await slack.message("1", "why did the deploy fail?"))
        # somebody replies below the answer, while the channel goes on: neither waits for the other
        in_thread, in_channel = await asyncio.gather(
            slack.message("2", "can we roll it back?", thread_ts="1"), slack.message("3", "who is on call today?")
        )
        print("thread: ", in_thread)
        print("channel:", in_channel)
        print("thread: ", await slack.message("4", "and when?", thread_ts="1"))
        print("again:  ", await slack.message("2", "can we roll it back?", thread_ts="1"))
        thread = await harness.conversation(key="slack:thread:1")
        for name, conversation in (("channel", slack.channel), ("thread", thread)):
            heard = [str(m.content) for m in await conversation.messages() if isinstance(m, UserMessage)]
            used = (await conversation.usage())["requests"]
            print(f"{name} {conversation.id}: {heard}, {used} requests")


asyncio.run(main())
