"""One tool call on its way to its code: found, checked, and shown to the gates."""

import asyncio
from typing import Any

import msgspec

from perdure.agent.agent import Agent, AgentNames
from perdure.agent.foreign import LOST, asked, close_quietly
from perdure.agent.hook_context import HookContext
from perdure.base import jsonvalue
from perdure.base.errors import Error, InvalidValue
from perdure.base.ids import EntryId
from perdure.base.text import well_formed
from perdure.extensions.resolve import ResolvedTool
from perdure.extensions.results import Block, Sleep, ToolResult, checked_result
from perdure.extensions.tool import Tool
from perdure.models.messages import AssistantMessage, ToolCall, decode_messages
from perdure.tasks.runtime import TaskRun


class CallSite(msgspec.Struct, frozen=True):
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


async def call_site(agent: Agent, run: TaskRun, call: ToolCall) -> CallSite | None:
    """A call with its tool; None where the tool is gone."""
    names = await agent.names(run.conversation_id)
    resolved = names.resolved.tools.get(call.name)
    return None if resolved is None else CallSite(agent, run, names, call, resolved)


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


class Held(msgspec.Struct, frozen=True):
    """A gate that holds a call back."""

    gate: str
    sleep: Sleep[Any]


async def check_call(site: CallSite) -> ToolCall | ToolResult | Held:
    """Repair, validate, ask the gates in order, validate again. A result instead: the call must not run."""
    arguments = site.call.arguments
    if not isinstance(arguments, dict):
        return error_result("invalid_arguments", f"the arguments are not a JSON object: {str(arguments)[:200]!r}")
    try:
        arguments = own_copy(arguments)
        if site.tool.prepare_arguments is not None:
            arguments = site.tool.prepare_arguments(arguments)
        _check_fits(site, arguments)
    except InvalidValue as error:
        return error_result("invalid_arguments", str(error))
    except Exception as error:
        return error_result("invalid_arguments", f"preparing the arguments failed: {error}")
    return await ask_gates(site, site.call.replace(arguments=arguments))


async def ask_gates(site: CallSite, call: ToolCall) -> ToolCall | ToolResult | Held:
    """Every `before_tool` hook in order; the first block or sleep stops. One that fails in any way blocks the call."""
    gates = [hook for hook in site.names.resolved.hooks_at("before_tool") if hook.concerns(call.name)]
    if not gates:
        return call
    for gate in gates:
        context = HookContext(site.agent, site.run, site.names)
        site.agent.asking[site.run.task_id] = gate.name, site.agent.session.clock.now()
        try:
            shown = call.replace(arguments=own_copy(call.arguments))
            async with asyncio.timeout(site.agent.settings.gate_timeout) as limit:
                answer = await asked(gate.function, context, shown)
        except Exception as error:
            if isinstance(error, LOST):
                raise
            if isinstance(error, TimeoutError) and limit.expired():
                return error_result("blocked", f"gate {gate.name} gave no answer in time")
            site.agent.report(f"gate {gate.name}", error)
            return error_result("blocked", f"gate {gate.name} failed: {error}")
        finally:
            site.agent.asking.pop(site.run.task_id, None)
            await close_quietly(site.agent, context)
        if isinstance(answer, Block):
            return error_result("blocked", str(answer.reason))
        if isinstance(answer, Sleep):
            return Held(gate.name, answer)
        if isinstance(answer, ToolCall):
            call = answer
        elif answer is not None:
            problem = TypeError(f"a gate answers a call, Block, Sleep or None, not {type(answer).__name__}")
            site.agent.report(f"gate {gate.name}", problem)
            return error_result("blocked", f"gate {gate.name} failed: {problem}")
    try:
        _check_fits(site, call.arguments)
    except Exception as error:  # whatever stands in the way of checking, it is a gate that put it there
        return error_result("blocked", f"the gates left arguments that do not fit: {error}")
    return call


def _check_fits(site: CallSite, arguments: Any) -> None:
    if not isinstance(arguments, dict):
        raise InvalidValue(f"arguments are an object, not {type(arguments).__name__}")
    jsonvalue.check(arguments)
    site.tool.decode(arguments)


def own_copy(arguments: Any) -> Any:
    """Arguments that may be changed in place: the transcript keeps what the model wrote. Raises `InvalidValue`."""
    jsonvalue.check(arguments)
    return jsonvalue.decode(jsonvalue.encode(arguments))


async def reviewed_result(
    agent: Agent, run: TaskRun, names: AgentNames, call: ToolCall, point: str, result: ToolResult
) -> ToolResult:
    """The result after the hooks of a point; one that raises, or gives what cannot be stored, is reported and passed
    over."""
    for hook in names.resolved.hooks_at(point):
        if not hook.concerns(call.name):
            continue
        context = HookContext(agent, run, names)
        try:
            replaced: Any = await asked(hook.function, context, result)
            if isinstance(replaced, ToolResult):
                result = checked_result(replaced)
            elif replaced is not None:
                raise TypeError(f"{point} gives a ToolResult or None, not {type(replaced).__name__}")
        except LOST:
            raise
        except Exception as error:
            agent.report(f"hook {hook.name}", error)
        finally:
            await close_quietly(agent, context)
    return result


async def reap(site: CallSite) -> tuple[str, ...]:
    """End what a call that was cut off left running; name what could not be ended, or that nobody could look."""
    try:
        env = await site.agent.env(site.run.conversation_id)
        try:
            return await env.reap(site.tag)
        finally:
            await env.close()
    except LOST:
        raise
    except Exception as error:
        site.agent.report(f"tool {site.tool.name}", error)
        return (f"whatever the call started, since its environment is not there: {error}",)


def error_result(code: str, detail: str) -> ToolResult:
    """An error as the model reads it: a stable code, then what happened."""
    return ToolResult(well_formed(f"{code}: {detail}"), is_error=True)
