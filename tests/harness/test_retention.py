"""What stays in memory of conversations, and what goes."""

from perdure import Extension, Settings, ToolContext
from perdure.base.ids import ROOT
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import call, say
from tests.agent.kit import Gate, agent, ask, said


async def test_an_idle_conversation_is_let_go_after_its_time_and_read_again_when_it_goes_on() -> None:
    clock = FakeClock()
    async with agent(["one", "two"], clock=clock) as (harness, root):
        assert await ask(root, "first") == "one"
        transcripts = harness.agent.transcripts
        await clock.advance(59.0)
        assert transcripts.held(ROOT) is not None
        await clock.advance(1.5)
        assert transcripts.held(ROOT) is None
        assert not [key for key in harness.session.store.working.documents if key[1] == "conversation"]
        assert await ask(root, "second") == "two"
        assert await said(root) == ["first", "second"]


async def test_a_conversation_that_is_used_meanwhile_stays_for_its_time_from_then() -> None:
    clock = FakeClock()
    async with agent(["one"], clock=clock, settings=Settings(retention=10.0)) as (harness, root):
        await ask(root)
        await clock.advance(8.0)
        await root.messages()
        await clock.advance(8.0)
        assert harness.agent.transcripts.held(ROOT) is not None
        await clock.advance(3.0)
        assert harness.agent.transcripts.held(ROOT) is None


async def test_nothing_is_let_go_while_a_tool_runs() -> None:
    clock, gate = FakeClock(), Gate()
    slow = Extension("slow")

    @slow.tool(replay="safe")
    async def work(ctx: ToolContext) -> str:
        """Work."""
        await gate.stop()
        return "worked"

    async with agent([call("work"), say("done")], slow, clock=clock) as (harness, root):
        submission = await root.submit("go")
        await gate.reached.wait()
        start = clock.now()
        looks = 0
        while clock.now() < start + 3600.0:
            await clock.jump_to(clock.next_alarm() or start + 3600.0)
            looks += 1
        assert looks <= 62, "it is not looked after every second"
        assert harness.agent.transcripts.held(ROOT) is not None
        gate.go.set()
        assert (await submission.wait()).text == "done"


async def test_a_session_that_holds_nothing_is_never_woken() -> None:
    clock = FakeClock()
    async with agent(["one"], clock=clock) as (harness, root):
        assert clock.next_alarm() is None
        await ask(root)
        assert clock.next_alarm() is not None
        await clock.advance(61.0)
        await settle()
        assert len(harness.agent.transcripts) == 0
        assert clock.next_alarm() is None
        await root.messages()
        assert clock.next_alarm() is not None
    assert clock.next_alarm() is None
