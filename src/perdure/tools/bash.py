"""The tool that runs shell commands."""

from typing import Annotated, Any, Final

from msgspec import Meta

from perdure.base.text import well_formed
from perdure.env.errors import EnvError
from perdure.env.protocol import LOCAL, ExecEnd, ExecutionEnv
from perdure.extensions.results import ToolError, ToolResult
from perdure.extensions.tool import Tool
from perdure.tools.live import LiveOutput
from perdure.tools.output import ShownOutput

DEFAULT_TIMEOUT: Final = 120.0
LONGEST_TIMEOUT: Final = 3600.0
"""Seconds. What takes longer belongs into a task that is looked after, not into a call."""

NOBODY_WATCHES: Final = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Nothing waits for a key or a password that nobody can give."""


async def _bash(
    ctx: Any,
    command: Annotated[str, Meta(description="Shell command, run in the working directory")],
    timeout: Annotated[
        float, Meta(gt=0, le=LONGEST_TIMEOUT, description="Seconds until it is stopped")
    ] = DEFAULT_TIMEOUT,
) -> ToolResult:
    """Run a shell command. Everything it starts ends with it, background processes included."""
    env: ExecutionEnv = ctx.env
    output = ShownOutput(spill=env.id == LOCAL)  # elsewhere the model could not read a file of this machine
    shown = None
    try:
        with LiveOutput(ctx.output) as live:
            async with await env.exec(command, env=NOBODY_WATCHES, timeout=timeout, tag=ctx.call_tag) as execution:
                async for chunk in execution:
                    live.add(output.add(chunk.stream, chunk.data))
                end = await execution.wait()
            live.flush()
        shown = output.end()
    except EnvError as error:
        raise ToolError(well_formed(str(error))) from error
    finally:
        if shown is None:
            output.discard()
    notes = _notes(end, timeout)
    return ToolResult(
        "\n".join([shown.rstrip("\n") or "(no output)", *notes]),
        is_error=bool(notes),
        details={
            "exit_code": end.code,
            "signal": end.signal,
            "timed_out": end.timed_out,
            "survivors": list(end.survivors),
        },
    )


bash = Tool(_bash, name="bash", replay="unsafe")


def _notes(end: ExecEnd, timeout: float) -> list[str]:
    notes = []
    if end.timed_out:
        notes.append(f"[stopped after {timeout:g} s, with everything it had started]")
    elif end.signal is not None:
        notes.append(f"[ended by signal {end.signal}]")
    elif end.code:
        notes.append(f"[exit code {end.code}]")
    if end.survivors:
        notes.append(f"[could not be ended: {well_formed(', '.join(end.survivors))}]")
    return notes
