"""Who may run: slots of providers and memory, counted from the rows of executions. Nothing is held while waiting."""

from typing import Final

from perdure import TaskTransaction
from perdure.subagents import rows
from perdure.subagents.config import AgentsConfig
from perdure.subagents.model_names import ModelName
from perdure.subagents.names import call_of
from perdure.subagents.pokes import poke
from perdure.subagents.state import Call, Execution, ExecutionDoc, Exhausted, ExhaustedDoc, LiveDoc, Waiting

MEMORY_RETRY: Final = 5.0
MEGABYTE: Final = 1024 * 1024


async def executions(reader: rows.Reader) -> list[Execution]:
    """All that are not proven gone."""
    return await rows.rows(reader, ExecutionDoc)


def held(found: list[Execution], provider: str) -> int:
    """Slots of a provider that are held, those reserved for switches included. Gates hold none."""
    return sum((one.provider == provider) + (one.reserved == provider) for one in found if one.kind == "host")


def available_megabytes() -> float:
    """What the kernel says can be used without swapping (proc(5), MemAvailable)."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return float("inf")


async def obstacle(
    tx: TaskTransaction, config: AgentsConfig, call: Call, model: ModelName, memory: float
) -> tuple[Waiting, float | None] | None:
    """Why the call cannot be admitted now, and when to try again by itself; None if it can."""
    now = tx.now_millis / 1000
    found = await executions(tx)
    used_up: Exhausted | None = await rows.read(tx, ExhaustedDoc, model.provider)
    if used_up is not None and (now < used_up.next_try or used_up.probe not in (None, call_of(call.wid, call.key))):
        detail = f"{model.provider} is used up: {used_up.error}"
        later = used_up.next_try if now < used_up.next_try else None
        return Waiting(reason="provider-exhausted", detail=detail, since=now), later
    limit, taken = config.slots(model.provider), held(found, model.provider)
    if limit is not None:
        before = sum(other.queued < call.queued or not call.queued for other in await queue(tx, model.provider, call))
        if taken + before >= limit:
            return Waiting(
                reason="slot", detail=f"waiting for a slot: {model.provider} {taken}/{limit}", since=now
            ), None
    fresh = sum(now - one.admitted < config.memory.warm_up_seconds for one in found if one.kind == "host")
    left = memory - config.memory.reserve_mb - fresh * config.memory.per_child_mb
    if left < config.memory.per_child_mb:
        detail = f"waiting for memory: {memory:.0f} MB available, {config.memory.reserve_mb} MB are kept free"
        return Waiting(reason="slot", detail=detail, since=now), now + MEMORY_RETRY
    if used_up is not None:
        used_up.probe = call_of(call.wid, call.key)  # one tries it, and the others wait for what it learns
        await rows.write(tx, ExhaustedDoc, model.provider, used_up)
    return None


async def free_probe(tx: TaskTransaction, config: AgentsConfig, call: str) -> None:
    """The call tries no used-up provider any more: another one may."""
    for found in await rows.rows(tx, ExhaustedDoc):
        if found.probe == call:
            found.probe = None
            await rows.write(tx, ExhaustedDoc, found.provider, found)
            await wake_queue(tx, config, found.provider)


async def queue(tx: TaskTransaction, provider: str, but: Call | None = None) -> list[Call]:
    """Calls that wait for a slot of a provider, in the order in which they began to."""
    found = []
    for wid in await rows.keys(tx, LiveDoc):
        workflow = await rows.workflow(tx, wid)
        for key in workflow.open if workflow is not None and not workflow.held else ():
            call = await rows.call(tx, wid, key)
            if call is None or not call.queued or (but is not None and (call.wid, call.key) == (but.wid, but.key)):
                continue
            if call.queued_for == provider:
                found.append(call)
    return sorted(found, key=lambda call: call.queued)


async def release(tx: TaskTransaction, config: AgentsConfig, execution: Execution) -> None:
    """The execution is proven gone: drop its row, and wake who waits for what it held."""
    await tx.retire(ExecutionDoc, key=execution.exec)
    if execution.kind == "host":
        for provider in {execution.provider, execution.reserved or execution.provider}:
            await wake_queue(tx, config, provider)


async def wake_queue(tx: TaskTransaction, config: AgentsConfig, provider: str) -> None:
    """Wake as many of those who wait for a provider as have room now."""
    limit = config.slots(provider)
    waiting = await queue(tx, provider)
    room = len(waiting) if limit is None else limit - held(await executions(tx), provider)
    for call in waiting[: max(0, room)]:
        await poke(tx, call)
