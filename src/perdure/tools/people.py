"""Where people come in: a tool by which the model asks them, and a gate that lets them approve calls."""

import hashlib
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

from msgspec import Meta

from perdure.base import jsonvalue
from perdure.base.clock import DAY, HOUR, MINUTE
from perdure.base.errors import InvalidDefinition
from perdure.base.text import cut_head, well_formed
from perdure.extensions.api import HookContext, ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.questions import PersonAnswer, PersonReply, Question, ToolCall, ask
from perdure.extensions.results import Block, Sleep, ToolResult
from perdure.extensions.tool import Tool

DEFAULT_HOURS: Final = 24.0
LONGEST_HOURS: Final = 24.0 * 90
CHOICES: Final = 12
"""More nobody reads on a phone."""
SHOWN_BYTES: Final = 32 * 1024
"""Arguments larger than this are shown by their beginning: a question is sent to everyone who watches."""
KEY: Final = "answer"


async def _ask_person(
    ctx: ToolContext[Any],
    question: Annotated[str, Meta(min_length=1, max_length=10_000, description="What you want to know")],
    choices: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=500)]],
        Meta(max_length=CHOICES, description="The answers to choose from; none: they answer in their own words"),
    ] = [],  # noqa: B006 - nobody changes it
    wait_hours: Annotated[
        float, Meta(gt=0, le=LONGEST_HOURS, description="How long to wait for an answer")
    ] = DEFAULT_HOURS,
) -> ToolResult | Sleep[Any]:
    """Ask a person a question and wait for the answer, for hours if need be. Nothing runs meanwhile.

    Ask only what you cannot find out yourself, one thing at a time.
    """
    state = await ctx.read_signal(PersonAnswer, KEY)
    if state is None:
        until = await ctx.memo("ask_person.until", ctx.now() + wait_hours * HOUR)  # a rerun asks no longer than this
        asked = Question(well_formed(question), tuple(well_formed(choice) for choice in choices))
        return Sleep(signals=[ask(KEY, asked)], until=until)
    if state.expired:
        return ToolResult(f"no answer within {_duration(wait_hours * HOUR)}", structured={"answer": None})
    reply = state.value
    note = f"\n{reply.note}" if reply.note else ""
    return ToolResult(f"{_word(reply)}{note}", structured={"answer": reply.answer, "note": reply.note, "by": reply.by})


ask_person: Final = Extension("ask_person")
ask_person.add(Tool(_ask_person, name="ask_person", replay="safe"))


def approvals(
    when: Callable[[ToolCall], Any] | None = None,
    *,
    tools: Iterable[str | Tool] | None = None,
    deadline: float | None = DAY,
    name: str = "approvals",
) -> Extension:
    """A gate that asks a person before calls run: of `tools`, and of those the ones for which `when` says so.

    `when(call)` gives False to let a call pass, True to ask, or a text that is shown as the reason; it may be async.
    Anything else it gives, and any error, blocks the call. `deadline`: seconds until the answer counts as no, from the
    first time it is asked; None waits for ever. A yes holds for exactly these arguments of this call: other ones, put
    there by another gate, are asked about anew. Extensions that change arguments therefore come before it.
    """
    if when is None and tools is None:
        raise InvalidDefinition("approvals of nothing", hint='tools=["bash"], a function of the call, or both')
    if when is not None and not callable(when):
        raise InvalidDefinition(f"approvals: `when` is a function of the call, not {when!r}")
    if deadline is not None and not deadline > 0:
        raise InvalidDefinition(f"approvals: a deadline is a number of seconds above 0, not {deadline!r}")
    extension = Extension(name)

    @extension.before_tool(tools=None if tools is None else list(tools))
    async def approval(ctx: HookContext, call: ToolCall) -> Block | Sleep[Any] | None:
        reason = True if when is None else when(call)
        if inspect.isawaitable(reason):
            reason = await reason
        if reason is False:
            return None
        if reason is not True and not (isinstance(reason, str) and reason.strip()):
            raise TypeError(f"`when` gives True, False or a reason, not {reason!r:.100}")
        key = approval_key(name, call)
        state = await ctx.read_signal(PersonAnswer, key)
        if state is None:
            until = None if deadline is None else await ctx.memo(f"{name}.until.{key}", ctx.now() + deadline)
            return Sleep(signals=[ask(key, _approval(call, reason))], until=until)
        if state.expired:
            assert deadline is not None
            return Block(f"nobody approved it within {_duration(deadline)}")
        if state.value.allows:
            return None
        return Block("not approved" + (f": {state.value.note}" if state.value.note else ""))

    return extension


def approval_key(name: str, call: ToolCall) -> str:
    """The key of an approval: a digest of the gate, the tool and its arguments, whatever the order of their keys."""
    asked = {"gate": name, "tool": call.name, "arguments": call.arguments}
    return hashlib.sha256(jsonvalue.canonical(asked)).hexdigest()[:32]


def _approval(call: ToolCall, reason: str | bool) -> Question:
    text = f"Run {call.name}?" + (f" {well_formed(reason)}" if isinstance(reason, str) else "")
    shown = jsonvalue.encode(call.arguments)
    if len(shown) <= SHOWN_BYTES:
        return Question(text, ("yes", "no"), "approval", call.name, call.arguments)
    begin = cut_head(shown.decode(), SHOWN_BYTES)
    rest = len(shown) - len(begin.encode())
    return Question(f"{text}\n{begin}\n[{rest:,} bytes more]", ("yes", "no"), "approval", call.name)


def _word(reply: PersonReply) -> str:
    return reply.answer if isinstance(reply.answer, str) else "yes" if reply.answer else "no"


def _duration(seconds: float) -> str:
    for size, unit in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if seconds >= size:
            count = f"{seconds / size:.3g}"
            return f"{count} {unit}{'' if count == '1' else 's'}"
    return f"{seconds:g} seconds"
