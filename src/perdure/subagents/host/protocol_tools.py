"""The tools that every subagent has: `ask`, and `report` where a schema is set."""

import hashlib
from collections.abc import Callable
from typing import Annotated, Any, Final

from msgspec import Meta

from perdure import Extension, Signal, Sleep, Terminate, ToolContext, ToolError, ToolResult
from perdure.subagents.host.documents import (
    Asked,
    AskedDoc,
    DeliveryDoc,
    GenerationDoc,
    MarkerDoc,
    RejectedDoc,
    Report,
    ReportDoc,
)
from perdure.subagents.host.texts import AWAY
from perdure.subagents.protocol import Launch
from perdure.subagents.schema import check_value

QUESTION_LENGTH: Final = 20_000
"""Characters."""
QUESTIONS_READ: Final = 1000
"""So many questions of one session are looked at."""
Answer: Signal[str] = Signal("agents.answer", schema=str)
Interruption: Signal[str] = Signal("agents.interruption", schema=str)


def question_id(generation: int, text: str) -> str:
    """Stable for the same text within a generation."""
    return hashlib.sha256(f"{generation}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()[:12]


def protocol_tools(launch: Launch, reported: Callable[[], None]) -> Extension:
    """`ask` and, with a schema, `report`, for one launch. `reported` is told of a report before it is stored."""
    extension = Extension("subagent_protocol", signals=[Answer, Interruption])
    extension.add(GenerationDoc, MarkerDoc, AskedDoc, ReportDoc, RejectedDoc, DeliveryDoc)

    @extension.tool(replay="safe")
    async def ask(
        ctx: ToolContext,
        question: Annotated[str, Meta(min_length=1, max_length=QUESTION_LENGTH, description="What you need to know")],
    ) -> str | Sleep[Any]:
        """Ask whoever gave you the task. Waits for the answer, for days if need be; ask one thing at a time."""
        qid = question_id(launch.generation, question)
        answer = await ctx.read_signal(Answer, "answer")
        if answer is not None:
            async with ctx.transaction() as tx:
                asked: Any = await tx.value_of(AskedDoc, key=qid)
            away = asked is not None and asked["exec"] != launch.exec
            return f"{answer.value}\n\n{AWAY}" if away else str(answer.value)
        interruption = await ctx.read_signal(Interruption, "interruption")
        if interruption is not None:
            return (
                f"Interrupted by a message; your question is still open, ask it again if you still need the answer.\n"
                f"Question: {question}\nMessage: {interruption.value}"
            )
        async with ctx.transaction() as tx:
            for key in await tx.document_keys(AskedDoc, limit=QUESTIONS_READ):
                other: Any = await tx.value_of(AskedDoc, key=key)
                if other["open"] and other["task"] not in (None, ctx.task_id):
                    raise ToolError("a question is open already: wait for its answer before you ask the next")
            known: Any = await tx.value_of(AskedDoc, key=qid)
            if known is None or known["task"] != ctx.task_id:
                rev = 1 if known is None else known["rev"] + 1
                made = Asked(
                    qid=qid, generation=launch.generation, text=question, rev=rev, at=ctx.now(), exec=launch.exec,
                    task=ctx.task_id,
                )  # fmt: skip
                await tx.set(AskedDoc, None, made, key=qid)
        return Sleep(signals=[Answer.key("answer"), Interruption.key("interruption")])

    if launch.schema is not None:
        _add_report(extension, launch, launch.schema, reported)
    return extension


def _add_report(extension: Extension, launch: Launch, schema: Any, reported: Callable[[], None]) -> None:
    @extension.tool(replay="safe")
    async def report(ctx: ToolContext, outcome: str, summary: str = "", data: Any = None) -> ToolResult:
        """Report how the task ended, as your last step: outcome `ok` or `failed`, a summary, the data asked for."""
        problems = [] if outcome in ("ok", "failed") else [f"/outcome: ok or failed, not {outcome!r:.100}"]
        if outcome == "ok":
            problems += [f"/data{problem}" for problem in check_value(schema, data)]
        if not problems:
            reported()
        async with ctx.transaction() as tx:
            if problems:
                await tx.set(RejectedDoc, None, "; ".join(problems), key=str(launch.generation))
            elif await tx.value_of(ReportDoc, key=launch.exec) is None:
                found = Report(outcome=outcome, summary=summary, data=data)
                await tx.set(ReportDoc, None, found, key=launch.exec)
        if problems:
            raise ToolError("the report does not fit: " + "; ".join(problems))
        return ToolResult("Reported.", control=Terminate())
