"""Two gates on one call: an approval whose deadline is fixed, and quiet hours. Each wake asks both again."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure import HOUR, Extension, Harness, HookContext, Registry, Sleep, ToolCall, ToolContext, ToolResultMessage
from perdure.testing.clock import FakeClock
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import approvals

clock = FakeClock(datetime(2026, 3, 2, 20, tzinfo=UTC).timestamp())


def moment(seconds: float | None = None) -> str:
    return datetime.fromtimestamp(clock.now() if seconds is None else seconds, UTC).strftime("%a %H:%M")


mail, quiet = Extension("mail"), Extension("quiet")


@mail.tool
async def send(ctx: ToolContext, to: str) -> str:
    """Send the newsletter."""
    print(f"  {moment()}  sent to {to}")
    return "sent"


@quiet.before_tool(tools=[send])
async def hours(ctx: HookContext, made: ToolCall) -> Sleep | None:
    now = datetime.fromtimestamp(ctx.now(), UTC)
    at_night = now.hour >= 22 or now.hour < 8
    print(f"  {moment()}  quiet hours: {'wait' if at_night else 'pass'}")
    morning = now.replace(hour=8, minute=0) + timedelta(days=1 if now.hour >= 22 else 0)
    return Sleep(until=morning) if at_night else None


def is_large(made: ToolCall) -> bool | str:
    return "This reaches everyone." if made.arguments["to"] == "all" else False


async def main() -> None:
    registry = Registry([mail, quiet, approvals(is_large, tools=[send], deadline=24 * HOUR)])
    sends: list[Any] = [call("send", {"to": "all"}), say("It is out.")]
    model = ScriptedModel([*sends, *sends, call("send", {"to": "me"}), say("Look at it.")], clock=clock)
    async with Harness.open("memory:", registry=registry, models=model, clock=clock) as harness:
        root = await harness.root(model="scripted:model")

        print("approved at night")
        submission = await root.submit("Send it")
        await harness.wait_parked()
        (asked,) = await harness.questions()
        print(f"  {moment()}  asked: {asked.text} {asked.arguments}, until {moment(asked.until)}")
        await clock.advance(3.5 * HOUR)
        print(f"  {moment()}  approved: {await harness.answer(asked.id, 'yes')}")
        await harness.wait_parked()
        print(f"  {moment()}  open questions: {len(await harness.questions())}, alarm {moment(harness.wake().at)}")
        await clock.jump_to(harness.wake().at or 0)
        print(f"  {moment()}  {(await submission.wait()).text}")

        print("nobody answers; other code is installed meanwhile, so the gates are asked again")
        submission = await root.submit("Send it again")
        await harness.wait_parked()
        await clock.advance(2 * HOUR)
        harness.agent.registry.install(Extension("news"))
        await harness.wait_parked()
        (asked,) = await harness.questions()
        print(f"  {moment()}  still until {moment(asked.until)}")
        await clock.advance(22 * HOUR)
        await submission.wait()

        print("not risky")
        await (await root.submit("Only to me")).wait()
        print([m.content for m in await root.messages() if isinstance(m, ToolResultMessage)])


asyncio.run(main())
