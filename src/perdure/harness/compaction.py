"""A compaction as the one who asked for it holds it."""

from collections.abc import Generator
from typing import Any, Literal

import msgspec

from perdure.base.ids import ConversationId, EntryId, TaskId
from perdure.base.lazy import load


class Compacted(msgspec.Struct, frozen=True):
    """How a compaction ended.

    `status`: "placed" (the summary is in the transcript, as `entry_id`), "queued" (it waits in the inbox of a
    conversation whose run failed, and goes first with the next input), "stale" (the context began anew meanwhile),
    "nothing" (there was nothing older), "declined" (by a hook), "failed" or "aborted". `reason` says more.
    """

    status: Literal["placed", "queued", "stale", "nothing", "declined", "failed", "aborted"]
    entry_id: EntryId | None = None
    reason: str | None = None


class Compaction:
    """One compaction. Its state is stored; this is only a way to ask for it. `await compaction` is `wait()`."""

    def __init__(self, harness: Any, conversation: ConversationId, task_id: TaskId) -> None:
        self._harness = harness
        self.conversation_id = conversation
        self.task_id = task_id

    def __repr__(self) -> str:
        return f"Compaction({self.task_id})"

    def __await__(self) -> Generator[Any, Any, Compacted]:
        return self.wait().__await__()

    async def wait(self) -> Compacted:
        """Wait until it has ended and its summary has its place. Never raises for one that gave none; cancelling
        changes nothing. Starts scheduling."""
        wait = load("perdure.harness.compacting:wait_compacted")
        ended: Compacted = await wait(self._harness.actions, self.conversation_id, self.task_id)
        return ended

    async def abort(self) -> bool:
        """Stop it; nothing is placed. False if it has ended already."""
        aborted: bool = await self._harness.actions.abort_task(self.task_id)
        return aborted
