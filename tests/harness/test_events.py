"""What events tell of a run, in which order, and what they fold to."""

from typing import Any

import msgspec
import pytest

from perdure import Extension, ResetEntry, ToolContext, ToolError
from perdure.events import (
    AnyEvent,
    InboxChanged,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Retry,
    Snapshot,
    SubmissionChanged,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    UsageChanged,
)
from perdure.models.errors import CutOff
from perdure.session.watch import FRAMES_KEPT
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, call, cut, say, think
from tests.agent.kit import Gate, agent, ask
from tests.harness.viewers import Listener, fresh_view

LONG = " ".join(f"word {number}" for number in range(60))


def tools(gate: Gate) -> Extension:
    extension = Extension("tools")

    @extension.tool
    async def work(ctx: ToolContext, what: str) -> str:
        """Work."""
        ctx.output(f"working on {what}\n")
        await gate.stop()
        if what == "bad":
            raise ToolError("no")
        return "done"

    return extension


def of(listener: Listener, kind: type[Any]) -> list[Any]:
    return [event for event in listener.events if isinstance(event, kind)]


async def test_a_run_is_told_from_its_input_to_its_end() -> None:
    gate, clock = Gate(), FakeClock()
    model = ScriptedModel([call("work", {"what": "a"}), say(LONG).after(0, between=0.02)], clock=clock)
    async with agent(model, tools(gate), clock=clock) as (harness, root), Listener(root.events()) as listener:
        submission = await root.submit("go", request_id="r")
        await gate.reached.wait()
        await clock.advance(0.2)
        gate.go.set()
        await settle()
        await clock.advance(5)
        await submission.wait()
        await listener.drain()
        types = listener.types
        assert types[:8] == [
            *("snapshot", "submission", "run_start", "turn_start", "message_start", "message_end"),
            *("message_start", "message_end"),
        ]
        told = [name for name in types[8:] if name not in ("message_update", "usage")]
        assert told == [
            *("message_start", "message_end", "tool_start", "tool_update", "message_start", "message_end", "tool_end"),
            *("turn_end", "turn_start", "message_start", "message_end", "turn_end", "run_end", "submission"),
        ]
        [start] = of(listener, ToolStart)
        assert (start.name, start.status, start.arguments) == ("work", "running", {"what": "a"})
        assert of(listener, ToolUpdate)[0].output == "working on a\n"
        assert [(end.name, end.is_error) for end in of(listener, ToolEnd)] == [("work", False)]
        assert "".join(event.delta for event in of(listener, MessageUpdate)) == LONG
        assert [event.used["requests"] for event in of(listener, UsageChanged)] == [1, 2]
        first, last = of(listener, SubmissionChanged)
        assert (first.status, first.request_id, last.status) == ("placed", "r", "done")
        assert last.answer == of(listener, MessageEnd)[-1].entry["id"]
        assert listener.entries == (await fresh_view(harness, root))["entries"]


async def test_thinking_calls_and_text_stream_as_blocks() -> None:
    clock, gate = FakeClock(), Gate()
    gate.go.set()
    turn = [think("Hm, let me think."), say("I will look."), call("work", {"what": "a" * 40})]
    slow = [cut(40, turn).after(0, between=0.05), say("ok")]
    async with agent(ScriptedModel(slow, clock=clock), tools(gate), clock=clock) as (_, root):
        async with Listener(root.events()) as listener:
            submission = await root.submit("go")
            await settle()
            await clock.advance(60)
            await submission.wait()
            await listener.drain()
            blocks: dict[int, str] = {}
            names: dict[int, str] = {}
            cut_off = listener.events.index(of(listener, Retry)[0])
            for event in listener.events[:cut_off]:
                if not isinstance(event, MessageUpdate):
                    continue
                blocks[event.block] = blocks.get(event.block, "") + event.delta
                names[event.block] = names.get(event.block, event.kind) + event.name
            assert blocks[0] == "Hm, let me think."
            assert blocks[1] == "I will look."
            assert names == {0: "thinking", 1: "text", 2: "tool_callwork"}
            assert blocks[2].startswith('{"what":')


async def test_a_request_that_fails_is_a_message_that_ended_and_a_retry() -> None:
    clock = FakeClock()
    script = [cut(5, say(LONG).after(0, between=0.1), CutOff("gone")), say("ok")]
    async with agent(ScriptedModel(script, clock=clock), clock=clock) as (_, root):
        async with Listener(root.events()) as listener:
            submission = await root.submit("go")
            await settle()
            await clock.advance(120)
            assert (await submission.wait()).text == "ok"
            await listener.drain()
            [retry] = of(listener, Retry)
            assert (retry.attempt, "gone" in retry.error) == (1, True)
            ends = [event.entry["messages"][0].get("stop") for event in of(listener, MessageEnd)[1:]]
            assert "error" in ends
            assert len(of(listener, MessageStart)) == len(of(listener, MessageEnd))


async def test_what_waits_is_told_until_it_is_placed_or_withdrawn() -> None:
    gate = Gate()
    async with agent([call("work", {"what": "bad"}), say("ok")], tools(gate)) as (_, root):
        async with Listener(root.events()) as listener:
            await root.submit("go")
            await gate.reached.wait()
            steer = await root.submit("rather so", when_busy="steer")
            later = await root.submit("and then")
            await later.abort()
            gate.go.set()
            await root.wait_idle()
            await listener.drain()
            inbox = of(listener, InboxChanged)
            assert [[item["submission"] for item in each.added] for each in inbox] == [[steer.id], [later.id], [], []]
            assert [each.removed for each in inbox] == [[], [], [later.id], [steer.id]]
            assert [end.is_error for end in of(listener, ToolEnd)] == [True]
            told = [(event.id, event.status, event.reason) for event in of(listener, SubmissionChanged)]
            assert (later.id, "unanswered", "withdrawn") in told


async def test_a_submission_that_changes_nothing_else_is_told_too() -> None:
    async with agent([say("x")]) as (_, root):
        await ask(root)
        await root.write(ResetEntry(None), head=True)
        async with Listener(root.events()) as listener, root.watch() as watch:
            await root.write(ResetEntry(None), head=(await root.entries())[0].id)
            await listener.drain()
            [stale] = of(listener, SubmissionChanged)
            assert (stale.status, stale.reason) == ("unanswered", "stale")
            assert len(watch._frames) == 0


async def test_a_consumer_that_lags_gets_a_fresh_snapshot() -> None:
    async with agent([say("x")]) as (harness, root), Listener(root.events()) as listener:
        await ask(root)
        for number in range(FRAMES_KEPT):
            await root.configure(instructions=str(number))
        await listener.drain()
        assert len(of(listener, Snapshot)) == 2
        assert listener.entries == (await fresh_view(harness, root))["entries"]
        assert listener.stream.ended is None


async def test_events_end_when_the_session_closes() -> None:
    async with agent([]) as (harness, root):
        async with root.events() as stopped, root.events() as closed:
            stopped.stop()
            assert [event async for event in stopped] == []
            await harness.close()
            assert [type(event) async for event in closed] == [Snapshot]
            assert (stopped.ended, closed.ended) == ("stopped", "closed")


@pytest.mark.parametrize("kind", AnyEvent.__args__)
def test_every_event_is_json_and_comes_back(kind: Any) -> None:
    samples: dict[Any, Any] = {
        int: 1,
        int | None: 1,
        float: 1.5,
        str: "x",
        bool: True,
        list[int]: [1],
        dict[str, Any]: {"a": 1},
    }
    fields = {field.name: samples.get(field.type, "x") for field in msgspec.structs.fields(kind)}
    fields = {name: [] if name == "added" else ({} if name == "fields" else value) for name, value in fields.items()}
    event = kind(**fields)
    encoded = msgspec.json.encode(event)
    assert msgspec.json.decode(encoded)["type"] == kind.__struct_config__.tag
    assert msgspec.json.decode(encoded, type=AnyEvent) == event


def test_an_event_tells_its_type_as_it_is_encoded() -> None:
    event = MessageStart(seq=3, kind="perdure.assistant", model="scripted:model")
    assert event.type == msgspec.json.decode(msgspec.json.encode(event))["type"] == "message_start"
