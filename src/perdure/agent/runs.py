"""Runs and boundaries: what starts one, what joins it, what ends it. All inside a caller's transaction."""

from typing import Any

from perdure.agent.documents import LiveDoc, no_run
from perdure.agent.settings import Settings
from perdure.agent.submissions import (
    dequeue,
    enqueue,
    place,
    place_write,
    queued_items,
    settle,
)
from perdure.base.delta import Operation
from perdure.base.ids import ConversationId, EntryId, SubmissionId, TaskId
from perdure.extensions.settled import Settled
from perdure.storage.records import Submission
from perdure.tasks.transaction import TaskTransaction

Starter = Any
"""Makes the task that works on a run; given by the room's own generation module."""


async def arrive(
    tx: TaskTransaction, conversation: ConversationId, submission: Submission, settings: Settings, start: Starter
) -> None:
    """A new submission finds its place: the transcript when nothing is open or queued, else the inbox.

    When a run failed and left its inbox behind, the queued items are placed before the next input, in order.
    """
    live: Any = await tx.value_of(LiveDoc, conversation)
    busy = live is not None and live["run"] is not None
    queued = await queued_items(tx, conversation)
    if not busy and not queued:
        if submission.kind == "write":
            place_write(tx, submission, await current_head(tx, conversation))
        else:
            place(tx, submission)
            await open_run(tx, conversation, [submission.id], start)
        return
    if busy or submission.kind == "write":
        await enqueue(tx, conversation, submission, after_abort=busy and is_aborting(tx, live))
        return
    inputs = await place_queued(tx, conversation, how=("write", "steer", "follow_up"), at_most={})
    place(tx, submission)
    await open_run(tx, conversation, [*inputs, submission.id], start)


def is_aborting(tx: TaskTransaction, live: Any) -> bool:
    """Whether the open run is being stopped: what is handed in now is meant for after it."""
    generation = tx.live_task(TaskId(live["run"]["generation"]))
    return generation is not None and generation.abort_requested


async def go_on_after_abort(tx: TaskTransaction, conversation: ConversationId, start: Starter) -> None:
    """A run was stopped. What was handed in after the stop starts the next run; what lay there before goes first."""
    if any(item.get("after_abort") for item in await queued_items(tx, conversation)):
        inputs = await place_queued(tx, conversation, how=("write", "steer", "follow_up"), at_most={})
        if inputs:
            await open_run(tx, conversation, inputs, start)


async def open_run(
    tx: TaskTransaction, conversation: ConversationId, inputs: list[SubmissionId], start: Starter
) -> TaskId:
    """Open a run for placed inputs: one generation, and a fresh live document."""
    generation = tx.create_task(start(), conversation=conversation)
    run = {
        "generation": generation,
        "inputs": list(inputs),
        "started_at": tx.now_millis / 1000,
        "turns": 0,
    }
    await tx.patch(LiveDoc, conversation, [{"op": "replace", "path": "/run", "value": run}])
    return generation


async def place_queued(
    tx: TaskTransaction, conversation: ConversationId, *, how: tuple[str, ...], at_most: dict[str, int]
) -> list[SubmissionId]:
    """Place queued items, kind after kind, each kind in its order; return the placed inputs."""
    items = await queued_items(tx, conversation)
    taken: list[int] = []
    inputs: list[SubmissionId] = []
    for wanted in how:
        left = at_most.get(wanted, len(items))
        for item in items:
            if item["how"] != wanted or left == 0:
                continue
            left -= 1
            submission = await tx.submission(SubmissionId(item["submission"]))
            taken.append(item["submission"])
            if submission is None or submission.status != "queued":
                continue
            if submission.kind == "write":
                place_write(tx, submission, await current_head(tx, conversation))
            else:
                place(tx, submission)
                inputs.append(submission.id)
    if taken:
        await dequeue(tx, conversation, set(taken))
    return inputs


async def join_run(tx: TaskTransaction, conversation: ConversationId, settings: Settings) -> list[SubmissionId]:
    """The boundary after a tool round: all writes, then steers; the steers join the run."""
    if not await queued_items(tx, conversation):
        return []
    at_most = {"steer": 1} if settings.steer_mode == "one" else {}
    inputs = await place_queued(tx, conversation, how=("write", "steer"), at_most=at_most)
    if inputs:
        ops: list[Operation] = [{"op": "add", "path": "/run/inputs/-", "value": id} for id in inputs]
        await tx.patch(LiveDoc, conversation, ops)
    return inputs


async def count_turn(tx: TaskTransaction, conversation: ConversationId) -> None:
    """A response of the model is stored, and the run goes on."""
    live: Any = await tx.value_of(LiveDoc, conversation)
    turns: Operation = {"op": "replace", "path": "/run/turns", "value": live["run"]["turns"] + 1}
    await tx.patch(LiveDoc, conversation, [turns, *_cleared(live)])


async def clear_attempt(tx: TaskTransaction, conversation: ConversationId) -> None:
    """A response is stored: what showed of it, and of attempts before it, goes."""
    if ops := _cleared(await tx.value_of(LiveDoc, conversation)):
        await tx.patch(LiveDoc, conversation, ops)


def _cleared(live: Any) -> list[Operation]:
    return [
        {"op": "replace", "path": f"/{field}", "value": None}
        for field in ("partial", "retry")
        if live[field] is not None
    ] + ([{"op": "remove", "path": "/deferred"}] if live.get("deferred") is not None else [])


def moves_range(tx: TaskTransaction, conversation: ConversationId) -> bool:
    """Whether this transaction places an entry with a head, so that the active range begins elsewhere."""
    return any(entry.conversation == conversation and entry.head for entry in tx.changes.entries.values())


async def finish_run(
    tx: TaskTransaction, conversation: ConversationId, settled: Settled, settings: Settings, start: Starter
) -> None:
    """The boundary at the end of a run that has an outcome of its own: its inputs settle, what is queued goes on."""
    await close_run(tx, conversation, settled)
    at_most: dict[str, int] = {}
    if settings.steer_mode == "one":
        at_most["steer"] = 1
    if settings.follow_up_mode == "one":
        at_most["follow_up"] = 1
    inputs = await place_queued(tx, conversation, how=("write", "steer", "follow_up"), at_most=at_most)
    if inputs:
        await open_run(tx, conversation, inputs, start)


async def close_run(tx: TaskTransaction, conversation: ConversationId, settled: Settled) -> None:
    """Settle the run's inputs and clear what was live; the inbox stays."""
    live: Any = await tx.value_of(LiveDoc, conversation)
    if live is None or live["run"] is None:
        return
    for id in live["run"]["inputs"]:
        submission = await tx.submission(SubmissionId(id))
        if submission is not None:
            settle(tx, submission, settled)
    ops = [
        {"op": "replace", "path": f"/{field}", "value": value}
        for field, value in no_run().items()
        if live[field] != value
    ]
    if live.get("deferred") is not None:
        ops.append({"op": "remove", "path": "/deferred"})
    await tx.patch(LiveDoc, conversation, ops)


async def withdraw_queued(tx: TaskTransaction, conversation: ConversationId) -> None:
    """Settle queued inputs as withdrawn (never writes); their content stays, so a client can offer it again."""
    withdrawn: set[int] = set()
    for item in await queued_items(tx, conversation):
        if item["how"] == "write":
            continue
        submission = await tx.submission(SubmissionId(item["submission"]))
        withdrawn.add(item["submission"])
        if submission is not None:
            settle(tx, submission, Settled("unanswered", reason="withdrawn"))
    if withdrawn:
        await dequeue(tx, conversation, withdrawn)


async def current_head(tx: TaskTransaction, conversation: ConversationId) -> EntryId | None:
    """Where the active range begins, or None for the beginning."""
    for entry in reversed(tx.changes.entries.values()):
        if entry.conversation == conversation and entry.head is not None:
            return entry.head
    return await tx.stored_head(conversation)
