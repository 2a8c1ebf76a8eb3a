"""The tools that every subagent has: `ask`, and `report` where a schema is set."""

import hashlib
from typing import Annotated, Any, Final

from msgspec import Meta

from perdure import Extension, Signal, Sleep, Terminate, ToolContext, ToolError, ToolResult
from perdure.subagents.host.documents import Asked, AskedDoc, Report, ReportDoc
from perdure.subagents.protocol import Launch
from perdure.subagents.schema import check_value

QUESTION_LENGTH: Final = 20_000
Answer: Signal[str] = Signal("agents.answer", schema=str)
Interruption: Signal[str] = Signal("agents.interruption", schema=str)


def question_id(generation: int, text: str) -> str:
    """Stable for the same text within a generation."""
    return hashlib.sha256(f"{generation}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()[:12]


def protocol_tools(launch: Launch) -> Extension:
    """`ask` and, with a schema, `report`, for one launch."""
    extension = Extension("subagent_protocol", signals=[Answer, Interruption])
    extension.add(AskedDoc, ReportDoc)

    @extension.tool(replay="safe")
    async def ask(
        ctx: ToolContext,
        question: Annotated[str, Meta(min_length=1, max_length=QUESTION_LENGTH, description="What you need to know")],
    ) -> str | Sleep[Any]:
        """Ask whoever gave you the task. Waits for the answer, for days if need be; ask one thing at a time."""
        answer = await ctx.read_signal(Answer, "answer")
        if answer is not None:
            return str(answer.value)
        qid = question_id(launch.generation, question)
        interruption = await ctx.read_signal(Interruption, "interruption")
        if interruption is not None:
            return (
                f"Interrupted by a message; your question is still open, ask it again if you still need the answer.\n"
                f"Question: {question}\nMessage: {interruption.value}"
            )
        async with ctx.transaction() as tx:
            for key in await tx.document_keys(AskedDoc, limit=1000):
                other: Any = await tx.value_of(AskedDoc, key=key)
                if other["open"] and other["task"] not in (None, ctx.task_id):
                    raise ToolError("a question is open already: wait for its answer before you ask the next")
            known: Any = await tx.value_of(AskedDoc, key=qid)
            if known is None or known["task"] != ctx.task_id:
                rev = 1 if known is None else known["rev"] + 1
                asked = Asked(
                    qid=qid, generation=launch.generation, text=question, rev=rev, at=ctx.now(), task=ctx.task_id
                )
                await tx.set(AskedDoc, None, asked, key=qid)
        return Sleep(signals=[Answer.key("answer"), Interruption.key("interruption")])

    if launch.schema is not None:
        schema = launch.schema

        @extension.tool(replay="safe")
        async def report(ctx: ToolContext, outcome: str, summary: str = "", data: Any = None) -> ToolResult:
            """Report how the task ended, as your last step: outcome `ok` or `failed`, a summary, the data asked for."""
            problems = [] if outcome in ("ok", "failed") else [f"/outcome: ok or failed, not {outcome!r:.100}"]
            if outcome == "ok":
                problems += [f"/data{problem}" for problem in check_value(schema, data)]
            found = Report(exec=launch.exec, outcome=outcome, summary=summary, data=data)
            if problems:
                found = Report(exec=launch.exec, rejected="; ".join(problems))
            async with ctx.transaction() as tx:
                known: Any = await tx.value_of(ReportDoc, key=str(launch.generation))
                if known is None or known.get("rejected") is not None:
                    await tx.set(ReportDoc, None, found, key=str(launch.generation))
            if problems:
                raise ToolError("the report does not fit: " + "; ".join(problems))
            return ToolResult("Reported.", control=Terminate())

    return extension
