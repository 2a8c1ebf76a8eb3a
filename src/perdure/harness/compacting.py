"""Beginning a compaction and waiting for it. Loaded when the first one is asked for."""

from typing import Any

from perdure.agent.compactions import checked_instructions, made_by
from perdure.agent.documents import LiveDoc
from perdure.agent.room import start_compaction
from perdure.agent.submissions import settled_of
from perdure.base.ids import ConversationId, SubmissionId, TaskId
from perdure.harness.actions import Actions
from perdure.harness.compaction import Compacted


async def begin(actions: Actions, conversation: ConversationId, instructions: str | None) -> TaskId:
    """Begin a compaction, or join one (see `Conversation.compact`). Starts no scheduling."""
    wanted = checked_instructions(instructions)
    async with actions.session.transaction() as tx:
        await tx.conversation(conversation)
        return await start_compaction(tx, conversation, "manual", instructions=wanted)


async def wait_compacted(actions: Actions, conversation: ConversationId, task: TaskId) -> Compacted:
    """Wait until a compaction has ended and its summary is in the transcript, or cannot get there for now."""
    session = actions.session
    await actions.tasks.resume()
    ended = made_by(await actions.tasks.wait(task))
    if ended["status"] != "queued":
        return Compacted(ended["status"], ended["entry"], ended["reason"])
    submission, settled = SubmissionId(ended["submission"]), None

    async def decided() -> bool:
        nonlocal settled
        record = await session.store.submission(submission)
        settled = None if record is None else settled_of(record)
        live: Any = await session.value_of(LiveDoc, conversation)
        return settled is not None or live is None or live["run"] is None  # without a run nothing places it

    await actions.until(decided)
    if settled is None:
        return Compacted("queued")
    await session.store.settled()
    return Compacted("placed" if settled.status == "done" else "stale", settled.answer, settled.detail)
