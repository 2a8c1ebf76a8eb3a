"""Summaries of older messages: asked for, in the background, at the limit, and when the provider finds it too long."""

import asyncio
from typing import Any

import pytest

from perdure import CompactionSettings, Extension, Settings
from perdure.agent.summary import OPENING
from perdure.extensions.results import CompactionPlan, Decline, Summary
from perdure.models.errors import ContextTooLong, Overloaded
from perdure.models.messages import UserMessage
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, fail, say
from tests.agent.kit import Gate, agent, ask, said, texts

LONG = "word " * 40
"""50 tokens."""


def is_summary_request(request: Any) -> bool:
    """Whether a request asks for a summary: the task is its last message."""
    last = request.messages[-1]
    return isinstance(last, UserMessage) and "in at most" in str(last.content)


def summaries(request: Any) -> int:
    """How many summaries stand in a request."""
    return sum(isinstance(m, UserMessage) and str(m.content).startswith(OPENING) for m in request.messages)


async def talk(root: Any, turns: int) -> None:
    for number in range(turns):
        await ask(root, f"{number} {LONG}")


async def test_a_summary_asked_for_stands_for_the_older_messages_and_newer_ones_stay() -> None:
    model = ScriptedModel(lambda request: "NOTES" if is_summary_request(request) else "fine")
    async with agent(model) as (_, root):
        await talk(root, 6)
        before = await root.messages()
        done = await (await root.compact("Keep the numbers")).wait()
        assert (done.status, done.reason) == ("placed", None)
        after = await root.messages()
        assert after[0] == UserMessage(OPENING + "NOTES")
        assert after[1:] == before[-len(after) + 1 :]
        assert 1 < len(after) < len(before)
        assert "Keep the numbers" in str(model.requests[-1].messages[-1].content)
        assert len(await root.entries(limit=500)) > len(before)
        await ask(root, "and now?")
        assert [summaries(request) for request in model.requests[-1:]] == [1]
