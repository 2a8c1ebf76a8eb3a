"""Preparing a request: sections to a prompt change, the context to messages, hooks over them."""

from typing import Any

import msgspec

from perdure.agent.agent import Agent, AgentNames
from perdure.agent.context import Context, for_model
from perdure.agent.documents import LiveDoc, UsageDoc
from perdure.agent.entries import SystemEntry, put
from perdure.agent.foreign import LOST, asked, close_quietly
from perdure.agent.hook_context import HookContext, SectionContext
from perdure.agent.pairing import paired
from perdure.agent.prompt import KEEP, Rendered, change
from perdure.agent.runs import join_run, moves_range
from perdure.agent.usage import total
from perdure.base.ids import ConversationId, EntryId, TaskId
from perdure.base.text import well_formed
from perdure.extensions.hooks import Hook
from perdure.models.errors import BadRequest
from perdure.models.messages import Message, SystemMessage, decode_messages, encode_messages
from perdure.models.protocol import Model, ModelRequest
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction


class Due(msgspec.Struct, frozen=True):
    """What a request is made from: the arguments of the request phase."""

    model: str
    up_to: EntryId
    thinking: str | None


async def due_request(
    agent: Agent,
    tx: TaskTransaction,
    task: TaskId,
    conversation: ConversationId,
    names: AgentNames,
    rendered: list[Rendered],
) -> Due | None:
    """Fix model, prompt, tools and the newest entry of a request in this commit; what waits for the boundary joins.

    None: the active range was moved, so the prompt has to be told anew from where it begins, in a commit of its own.
    """
    transcript = agent.transcripts.held(conversation)
    live: Any = await tx.value_of(LiveDoc, conversation)
    if live["run"]["turns"]:
        await join_run(tx, conversation, agent.settings)
    if transcript is None or names.model is None or moves_range(tx, conversation):
        return None
    offers = [resolved.tool.offer for resolved in names.resolved.tools.values()]
    message = change(transcript.prompt, [("instructions", names.instructions), *rendered], offers)
    if message is not None:
        put(tx, conversation, SystemEntry, message, task=task)
    if live["tools"]:
        await tx.patch(LiveDoc, conversation, [{"op": "replace", "path": "/tools", "value": {}}])
    newest = [entry.id for entry in tx.changes.entries.values() if entry.conversation == conversation]
    return Due(names.model, newest[-1] if newest else transcript.newest, names.thinking)


async def render_sections(agent: Agent, conversation: ConversationId, names: AgentNames) -> list[Rendered]:
    """The prompt's sections now; one that raises keeps its last text and is reported."""
    rendered: list[Rendered] = []
    if not names.resolved.sections:
        return rendered
    context = SectionContext(agent, conversation, names)
    try:
        for section in names.resolved.sections:
            try:
                text = await asked(section.function, context)
                if text is not None and not isinstance(text, str):
                    raise TypeError(f"a section gives text or None, not {type(text).__name__}")
                rendered.append((section.name, None if text is None else well_formed(text)))
            except LOST:
                raise
            except Exception as error:
                agent.report(f"section {section.extension}.{section.name}", error)
                rendered.append((section.name, KEEP))
    finally:
        await close_quietly(agent, context)
    return rendered


async def build_request(
    agent: Agent, run: TaskRun, model: Model, context: Context, thinking: str | None
) -> ModelRequest:
    """The request that a context gives for a model, after the `before_request` hooks."""
    view = for_model(context, model.system_updates)
    messages = view.messages
    names = await agent.names(run.conversation_id)
    hooks = names.resolved.hooks_at("before_request")
    if hooks:
        hook_context = HookContext(agent, run, names)
        try:
            for hook in hooks:
                messages = await _replaced(agent, hook, hook_context, messages, model.system_updates)
        finally:
            await close_quietly(agent, hook_context)
    return ModelRequest(
        messages,
        system=view.system,
        tools=view.tools,
        thinking=thinking,  # type: ignore[arg-type]
        session_id=f"perdure-{agent.session_tag}-{run.conversation_id}",
        options=agent.settings.stream_options,
        load_blob=agent_blob(agent),
        deferrable=True,
    )


def agent_blob(agent: Agent) -> Any:
    """Reads attachments from the session's store."""

    async def load(digest: str) -> bytes:
        content = await agent.attachments.read(digest)
        if content is None:
            raise BadRequest(f"attachment {digest[:12]}… is not stored here", hint="did a hook refer to it?")
        return content

    return load


async def spent_budget(agent: Agent, conversation: ConversationId) -> str | None:
    """Which bound of the budget is reached, for people; None while there is room."""
    budget = agent.budget(await agent.names(conversation))
    if budget.unbounded:
        return None
    live: Any = await agent.session.value_of(LiveDoc, conversation)
    turns = live["run"]["turns"] if live is not None and live["run"] is not None else 0
    if budget.max_turns is not None and turns >= budget.max_turns:
        return f"{turns} turns of at most {budget.max_turns}"
    usage: Any = await agent.session.value_of(UsageDoc, conversation)
    if usage is None:
        return None
    spent = total([usage])
    tokens = spent["input"] + spent["output"]
    if budget.max_tokens is not None and tokens >= budget.max_tokens:
        return f"{tokens} tokens of at most {budget.max_tokens}"
    if budget.max_cost is not None and spent["cost"] >= budget.max_cost:
        return f"{spent['cost']} USD of at most {budget.max_cost}"
    return None


async def _replaced(
    agent: Agent, hook: Hook, context: HookContext, messages: list[Message], systems: bool
) -> list[Message]:
    """The messages after one hook. It sees copies, and what it gives is paired again: it cannot break a request."""
    try:
        given: Any = await asked(hook.function, context, decode_messages(encode_messages(messages)))
        if given is None:
            return messages
        if not isinstance(given, list):
            raise TypeError(f"before_request gives a list of messages or None, not {type(given).__name__}")
        whole = paired(decode_messages(encode_messages(given)))
        kept = [message for message in whole if systems or not isinstance(message, SystemMessage)]
        if not kept:
            raise ValueError("before_request left no message")
        return kept
    except LOST:
        raise
    except Exception as error:
        agent.report(f"hook {hook.name}", error)
        return messages
