"""Proposals of calls: a generation of a new or changed one, the result that stands, or a refusal with its reason."""

from typing import Any, NamedTuple

import msgspec

from perdure import TaskTransaction
from perdure.subagents import rows
from perdure.subagents.engine.call_task import CallGeneration
from perdure.subagents.engine.generations import begin_generation
from perdure.subagents.names import generation_of
from perdure.subagents.spec import check_call, check_key, fingerprint
from perdure.subagents.state import Call, Pins, Result, ResultDoc, Workflow


class Refusal(NamedTuple):
    """A proposal of a script that gets a failed result at once."""

    key: str
    spec: Any
    fingerprint: str
    reason: str


def why_refused(workflow: Workflow, pins: Pins, key: str, spec: Any, accepted: int) -> str | None:
    """What is wrong with a script's proposal; None if its call can be made."""
    problems = [*check_key(key), *check_call(spec)]
    if problems:
        return "; ".join(problems)
    if spec["agent"] not in pins.agents:
        return f"unknown agent {spec['agent']!r}; there are: {', '.join(sorted(pins.agents))}"
    return "spawn budget exceeded" if accepted >= workflow.max_calls else None


async def refuse(tx: TaskTransaction, workflow: Workflow, refusal: Refusal, revision: int) -> None:
    """Store the failed result of a proposal that no generation is made for."""
    now = tx.now_millis / 1000
    result = Result(key=refusal.key, gen=0, status="failed", error=refusal.reason, sealed=now)
    await rows.write(tx, ResultDoc, generation_of(workflow.wid, refusal.key, 0), result)
    if await rows.call(tx, workflow.wid, refusal.key) is not None:
        return
    spec = refusal.spec if isinstance(refusal.spec, dict) else {}
    call = Call(
        wid=workflow.wid, key=refusal.key, agent=str(spec.get("agent", "")), spec=spec, fingerprint=refusal.fingerprint,
        revision=revision, generation=0, phase="sealed", status="failed", created=now,
    )  # fmt: skip
    await rows.put_call(tx, call)
    workflow.calls.append(refusal.key)


async def propose(tx: TaskTransaction, workflow: Workflow, pins: Pins, spec: dict[str, Any], revision: int) -> Call:
    """Record a call and create its task, or find that its result stands: then it is sealed. The caller stores the
    workflow's row."""
    key = spec["key"]
    print_ = fingerprint(spec, pins.agents.get(spec["agent"]))
    call = await rows.call(tx, workflow.wid, key)
    if call is not None and await stands(tx, call, print_):
        call.revision = revision
        await rows.put_call(tx, call)
        return call
    now = tx.now_millis / 1000
    given = {name: value for name, value in spec.items() if name != "key"}
    if call is None:
        call = Call(wid=workflow.wid, key=key, agent=spec["agent"], spec=given, fingerprint=print_, created=now)
        workflow.calls.append(key)
    else:
        begin_generation(call)
        call.agent, call.spec, call.fingerprint, call.model = spec["agent"], given, print_, None
    call.revision, call.proposed = revision, call.generation
    call.opening, call.opening_request = spec["task"], f"task:{call.generation}"
    call.task = tx.create_task(CallGeneration(workflow.wid, key, call.generation))
    if key not in workflow.open:
        workflow.open.append(key)
    await rows.put_call(tx, call)
    return call


async def stands(reader: rows.Reader, call: Call, print_: str) -> bool:
    """Whether a call has ended that is proposed again as it was: with its newest result, or, where a follow-up was
    retired, with the one before. It is then the one that is shown."""
    if call.fingerprint != print_ or call.phase != "sealed":
        return False
    for generation in (call.generation if call.status is not None else 0, call.proposed):
        if generation and await rows.read(reader, ResultDoc, generation_of(call.wid, call.key, generation)) is not None:
            call.proposed = generation
            return True
    return False


async def proposed_result(reader: rows.Reader, workflow: Workflow, key: str) -> Result | None:
    """What the call ended with in the generation that was proposed; follow-ups do not change it."""
    call = await rows.call(reader, workflow.wid, key)
    if call is None:
        return None
    return await rows.read(reader, ResultDoc, generation_of(workflow.wid, key, call.proposed or call.generation))


def as_shown(result: Result) -> dict[str, Any]:
    """A result as scripts and replies see it."""
    found: dict[str, Any] = msgspec.to_builtins(result)
    found["ok"] = result.ok
    found.setdefault("output", "")
    return found
