"""Plan mode by hooks: nothing is changed before a person has approved the plan, and no answer stands before its steps
are done."""

import asyncio
from typing import Any, TypedDict

from perdure import (
    Block,
    Continue,
    Document,
    Extension,
    Harness,
    HookContext,
    Registry,
    RunAnswer,
    SectionContext,
    Terminate,
    ToolCall,
    ToolContext,
    ToolResult,
)
from perdure.harness.conversation import Conversation
from perdure.models.messages import ToolResultMessage, UserMessage
from perdure.testing.scripted_model import ScriptedModel, call, say


class PlanState(TypedDict):
    steps: list[str]
    done: list[str]
    approved: bool


def nothing_planned() -> PlanState:
    return {"steps": [], "done": [], "approved": False}


Plan = Document("plan.state", PlanState, initial=nothing_planned, history="rewindable", fork="as_of")
planning = Extension("planning")
planning.add(Plan)


@planning.section("mode")
async def mode(ctx: SectionContext) -> str:
    plan = await ctx.read(Plan)
    if plan is None or not plan["approved"]:
        return "Plan first: look around, then call present_plan. Changes are refused until it is approved."
    return f"The plan is approved: {', '.join(plan['steps'])}."


@planning.tool
async def present_plan(ctx: ToolContext, steps: list[str]) -> ToolResult:
    """Show a plan to a person. Ends the turn."""
    async with ctx.transaction() as tx:
        plan = await tx.doc(Plan, ctx.conversation_id)
        plan["steps"], plan["done"], plan["approved"] = steps, [], False
    return ToolResult("The plan waits for a person.", control=Terminate())


@planning.tool
async def change(ctx: ToolContext, step: str) -> str:
    """Carry out one step of the plan."""
    async with ctx.transaction() as tx:
        (await tx.doc(Plan, ctx.conversation_id))["done"].append(step)
    return f"done: {step}"


@planning.before_tool(tools=[change])
async def only_what_is_approved(ctx: HookContext, made: ToolCall) -> Block | None:
    plan = await ctx.read(Plan)
    if plan is None or not plan["approved"]:
        return Block("Plan mode: nothing is changed before a person has approved the plan.")
    return None if made.arguments["step"] in plan["steps"] else Block("This is no step of the approved plan.")


@planning.on_yield
async def all_steps(ctx: HookContext, answer: RunAnswer) -> Continue | None:
    plan = await ctx.read(Plan)
    if plan is None or not plan["approved"]:
        return None
    missing = [step for step in plan["steps"] if step not in plan["done"]]
    return Continue(f"Not done yet: {', '.join(missing)}.") if missing else None


async def approve(harness: Harness, conversation: Conversation) -> None:
    async with harness.session.transaction() as tx:
        (await tx.doc(Plan, conversation.id))["approved"] = True


async def main() -> None:
    steps: dict[str, Any] = {"steps": ["rename", "test"]}
    model = ScriptedModel(
        [
            call("change", {"step": "rename"}),
            call("present_plan", steps),
            [call("change", {"step": "rename"}), call("change", {"step": "delete everything"})],
            say("I am finished."),
            call("change", {"step": "test"}),
            say("Now I am finished."),
        ]
    )
    async with Harness.open("memory:", registry=Registry([planning]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        first = await (await root.submit("Rename the module")).settled()
        print("the run with the plan:", first.status)
        await approve(harness, root)
        print((await (await root.submit("Go ahead")).wait()).text)
        for message in await root.messages():
            if isinstance(message, UserMessage):
                print("->", message.content)
            elif isinstance(message, ToolResultMessage):
                print("  ", message.content)


asyncio.run(main())
