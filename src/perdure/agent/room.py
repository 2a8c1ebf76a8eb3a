"""Making room for a request: a summary in the background when the limit comes near, one to wait for at the limit."""

from typing import Any, Final, Literal

from perdure.agent.agent import Agent
from perdure.agent.compactions import COMPACTION_TASK, GOING_ON, Cause, show_started, shown, to_join
from perdure.agent.context import Context
from perdure.agent.cut import Limits, choose_cut, keeping, limits
from perdure.agent.documents import LiveDoc
from perdure.agent.estimate import tokens_in_use
from perdure.agent.runs import moves_range, place_queued
from perdure.base.ids import ConversationId, TaskId
from perdure.base.lazy import load
from perdure.models.protocol import Model
from perdure.tasks.decisions import Next
from perdure.tasks.outcomes import Completed
from perdure.tasks.phases import BoundPhase
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction

Pressure = Literal["", "background", "blocking"]
SMALLEST_GAIN: Final = 8
"""A summary by itself is made only of at least this share (one part of so many) of what is kept beside it."""
GROWN: Final = 4
"""After a compaction that gave no summary, the next in the background begins when this share (one part of so many) of
the way to the limit has gone by."""


async def start_compaction(
    tx: TaskTransaction,
    conversation: ConversationId,
    cause: Cause,
    *,
    instructions: str | None = None,
    owner: TaskId | None = None,
    tokens: int = 0,
) -> TaskId:
    """Begin a compaction, or join one that goes on and gives what is asked for."""
    joined = await to_join(tx, conversation, instructions)
    if joined is not None:
        return joined
    work = load(COMPACTION_TASK)(cause=cause, instructions=instructions)
    if owner is not None:
        id = tx.create_task(work, owner=owner)
    else:
        id = tx.create_task(work, conversation=conversation, background=cause == "background")
    await show_started(tx, conversation, id, cause, instructions, tokens)
    return id


class Room:
    """What a request about to be made finds out about its size."""

    def __init__(self, agent: Agent, run: TaskRun, model: Model, context: Context) -> None:
        self._agent = agent
        self._run = run
        self._conversation = run.conversation_id
        self._settings = agent.settings.compaction
        self._window = model.context_window if self._settings.automatic else None
        self.tokens = 0 if self._window is None else tokens_in_use(context)

    def pressure(self, waited: bool) -> Pressure:
        """What the size calls for. `waited`: the request waited for a summary already."""
        if self._window is None:
            return ""
        bounds = limits(self._window, self._settings)
        if self.tokens >= bounds.block and not waited:
            return "blocking"
        return "background" if self.tokens >= bounds.background else ""

    async def worth(self, cause: Cause) -> bool:
        """Whether a summary would gain anything to speak of."""
        bounds: Limits | None = None if self._window is None else limits(self._window, self._settings)
        transcript = await self._agent.transcripts.get(self._conversation)
        keep, room = keeping(cause, self.tokens, bounds, self._settings)
        cut = choose_cut(transcript.builder.places(), keep, room)
        return cut is not None and cut.older > keep // SMALLEST_GAIN

    async def begin_background(self) -> None:
        """Start a summary beside the conversation, unless one goes on or one has just come to nothing."""
        live: Any = await self._agent.session.value_of(LiveDoc, self._conversation)
        slots = shown(live).values()
        if any(slot["status"] in GOING_ON for slot in slots) or not self._grown(list(slots)):
            return
        if not await self.worth("background"):
            return
        async with self._run.transaction() as tx:
            await start_compaction(tx, self._conversation, "background", tokens=self.tokens)

    def _grown(self, slots: list[dict[str, Any]]) -> bool:
        assert self._window is not None
        bounds = limits(self._window, self._settings)
        step = max((bounds.block - bounds.background) // GROWN, 1)
        return all(slot["status"] in ("placed", "queued") or self.tokens >= slot["tokens"] + step for slot in slots)


async def make_room(
    agent: Agent,
    run: TaskRun,
    model: Model,
    context: Context,
    *,
    waited: str,
    prepare: BoundPhase[Any],
    then: BoundPhase[Any],
) -> Next[Any] | None:
    """Look at the size of a request that is about to be made. A decision: it waits for a summary first, or is prepared
    anew since one was there already. `waited`: what it waited for before, if anything."""
    room = Room(agent, run, model, context)
    pressure = room.pressure(bool(waited))
    if pressure == "background":
        await room.begin_background()
    if pressure != "blocking":
        return None
    async with run.transaction() as tx:
        await place_queued(tx, run.conversation_id, how=("write",), at_most={})
        if moves_range(tx, run.conversation_id):
            return tx.goto(prepare)
        joined = await to_join(tx, run.conversation_id, None)
        if joined is not None:
            return tx.wait([joined], "all_settled", then, joined)
    if not await room.worth("blocking"):
        return None
    return await wait_for_summary(run, "blocking", room.tokens, then)


async def wait_for_summary(run: TaskRun, cause: Cause, tokens: int, then: BoundPhase[Any]) -> Next[Any]:
    """Park the run until a summary is made."""
    async with run.transaction() as tx:
        id = await start_compaction(tx, run.conversation_id, cause, owner=run.task_id, tokens=tokens)
        return tx.wait([id], "all_settled", then, id)


async def was_placed(run: TaskRun, compaction: TaskId) -> bool:
    """Whether a compaction that has ended moved the context's beginning."""
    outcome = (await run.outcomes([compaction]))[0]
    return isinstance(outcome, Completed) and isinstance(outcome.value, dict) and outcome.value["status"] == "placed"
