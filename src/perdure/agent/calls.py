"""One tool call on its way to its code: found, checked, and shown to the gates."""

import asyncio
from dataclasses import dataclass
from typing import Any

from perdure.agent.agent import Agent, AgentNames
from perdure.agent.hook_context import HookContext
from perdure.base import jsonvalue
from perdure.base.errors import Error, InvalidValue
from perdure.base.ids import EntryId
from perdure.extensions.resolve import ResolvedTool
from perdure.extensions.results import Block, ToolResult
from perdure.extensions.tool import Tool
from perdure.models.messages import AssistantMessage, ToolCall, decode_messages
from perdure.tasks.runtime import TaskRun


@dataclass(frozen=True)
class CallSite:
    """A call with the tool that answers it, as of this invocation."""

    agent: Agent
    run: TaskRun
    names: AgentNames
    call: ToolCall
    resolved: ResolvedTool

    @property
    def tool(self) -> Tool:
        return self.resolved.tool

    @property
    def tag(self) -> str:
        """Marks the processes that the call starts, so that they are found after a crash."""
        return f"{self.agent.session_tag}.{self.run.task_id}"


async def call_site(agent: Agent, run: TaskRun, answer: EntryId, position: int) -> CallSite | ToolCall:
    """The call at a position of an answer, with its tool; only the call where the tool is gone."""
    call = await find_call(agent, run, answer, position)
    names = await agent.names(run.conversation_id)
    resolved = names.resolved.tools.get(call.name)
    return call if resolved is None else CallSite(agent, run, names, call, resolved)


async def find_call(agent: Agent, run: TaskRun, answer: EntryId, position: int) -> ToolCall:
    """The call itself, from the answer that made it."""
    message = await answer_message(agent, run, answer)
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    return calls[position]


async def answer_message(agent: Agent, run: TaskRun, answer: EntryId) -> AssistantMessage:
    """An answer of this conversation."""
    held = (await agent.transcripts.get(run.conversation_id)).find(answer)
    if held is None:
        entry = await agent.session.store.entry(answer)
        if entry is None:
            raise Error(f"entry {answer} is gone")
        held = decode_messages(entry.messages)
    message = held[0]
    assert isinstance(message, AssistantMessage)
    return message


def ready_at_once(site: CallSite) -> bool:
    """Whether a call's arguments can be checked on the spot: no gate to ask, nothing to prepare, and they fit."""
    arguments = site.call.arguments
    gates = site.names.resolved.hooks_at("before_tool")
    if isinstance(arguments, str) or site.tool.prepare_arguments or any(g.concerns(site.call.name) for g in gates):
        return False
    try:
        jsonvalue.check(arguments)
        site.tool.decode(arguments)
    except Exception:
        return False
    return True


async def check_call(site: CallSite) -> ToolCall | ToolResult:
    """Repair, validate, ask the gates in order, validate again. A result instead: the call must not run."""
    arguments = site.call.arguments
    if isinstance(arguments, str):
        return error_result("invalid_arguments", f"the arguments are not a JSON object: {arguments[:200]!r}")
    try:
        jsonvalue.check(arguments)
        if site.tool.prepare_arguments is not None:
            arguments = site.tool.prepare_arguments(dict(arguments))
        site.tool.decode(arguments)
    except InvalidValue as error:
        return error_result("invalid_arguments", str(error))
    except Exception as error:
        return error_result("invalid_arguments", f"preparing the arguments failed: {error}")
    return await ask_gates(site, site.call.replace(arguments=arguments))


async def ask_gates(site: CallSite, call: ToolCall) -> ToolCall | ToolResult:
    """Every `before_tool` hook in order; the first block stops. A hook that fails in any way blocks the call."""
    gates = [hook for hook in site.names.resolved.hooks_at("before_tool") if hook.concerns(call.name)]
    if not gates:
        return call
    context = HookContext(site.agent, site.run, site.names)
    for gate in gates:
        try:
            answer = await asyncio.wait_for(gate.function(context, call), site.agent.settings.gate_timeout)
        except TimeoutError:
            return error_result("blocked", f"gate {gate.name} gave no answer in time")
        except Exception as error:
            site.agent.report(f"gate {gate.name}", error)
            return error_result("blocked", f"gate {gate.name} failed: {error}")
        if isinstance(answer, Block):
            return error_result("blocked", answer.reason)
        if isinstance(answer, ToolCall):
            call = answer
        elif answer is not None:
            problem = TypeError(f"a gate answers a call, Block or None, not {type(answer).__name__}")
            site.agent.report(f"gate {gate.name}", problem)
            return error_result("blocked", f"gate {gate.name} failed: {problem}")
    try:
        jsonvalue.check(call.arguments)
        site.tool.decode(call.arguments)
    except InvalidValue as error:
        return error_result("blocked", f"the gates left arguments that do not fit: {error}")
    return call


async def reviewed_result(site: CallSite, point: str, result: ToolResult) -> ToolResult:
    """The result after the hooks of a point; one that raises is reported and passed over."""
    for hook in site.names.resolved.hooks_at(point):
        if not hook.concerns(site.call.name):
            continue
        try:
            context = HookContext(site.agent, site.run, site.names)
            replaced: Any = await hook.function(context, result)
            if isinstance(replaced, ToolResult):
                result = replaced
            elif replaced is not None:
                raise TypeError(f"{point} gives a ToolResult or None, not {type(replaced).__name__}")
        except Exception as error:
            site.agent.report(f"hook {hook.name}", error)
    return result


async def reap(site: CallSite) -> tuple[str, ...]:
    """End what a call that was cut off left running; name what could not be ended."""
    env = await site.agent.env(site.run.conversation_id)
    try:
        return await env.reap(site.tag)
    finally:
        await env.close()


def error_result(code: str, detail: str) -> ToolResult:
    """An error as the model reads it: a stable code, then what happened."""
    return ToolResult(f"{code}: {detail}", is_error=True)
