"""A conversation as a host program holds it."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from perdure.agent.agent import AgentNames
from perdure.agent.configure import configure
from perdure.agent.resets import reset_draft
from perdure.agent.submissions import Draft, WhenBusy, input_draft, write_draft
from perdure.base.ids import ConversationId, EntryId, TaskId
from perdure.base.lazy import load
from perdure.extensions.results import UNSET
from perdure.harness.compaction import Compaction
from perdure.harness.event_stream import EventStream
from perdure.harness.reading import ConversationReads
from perdure.harness.submission import Submission
from perdure.session.watch import Watch


class Conversation(ConversationReads):
    """A handle: it holds no state but the id, so any number may exist."""

    async def submit(
        self,
        content: str | list[Any],
        *,
        request_id: str | None = None,
        when_busy: WhenBusy = "follow_up",
        notify: tuple[TaskId, str] | None = None,
    ) -> Submission:
        """Hand in an input; returns once it is stored. Starts scheduling.

        With a `request_id` this is exactly-once: the same id with the same content gives the first submission, with
        other content it raises `RequestConflict`. While a run is open, `follow_up` waits for its end, `steer` joins
        it after the current tool round, `reject` raises `Busy` and stores nothing.
        """
        draft = input_draft(content, request_id=request_id, when_busy=when_busy, notify=notify)
        return await self._admit(draft)

    async def write(
        self, entry: Any, *, request_id: str | None = None, head: EntryId | Literal[True] | None = None
    ) -> Submission:
        """Hand in a passive entry: placed at once when nothing is open or queued, else at the next boundary."""
        return await self._admit(write_draft(entry, request_id=request_id, head=head))

    async def _admit(self, draft: Draft) -> Submission:
        id = await self._harness.actions.admit(self.id, draft)
        return Submission(self._harness, self.id, id)

    async def abort(self, *, background: bool = False, keep_queued: bool = False) -> None:
        """Stop the current work and withdraw queued inputs, in one commit; return when that work has ended.

        What is handed in meanwhile is not part of it: it starts the next run.

        `background` reaches background work too; `keep_queued` leaves the inbox alone.
        """
        marked = await self._harness.actions.abort(self.id, background=background, keep_queued=keep_queued)
        await self._harness.actions.wait_ended(marked)

    async def compact(self, instructions: str | None = None) -> Compaction:
        """Have older messages summarized, also while the agent works; returns once that is stored. Starts scheduling.

        The newest messages stay as they are. `instructions` tell what the summary must keep. The summary is placed at
        once when nothing is open, else at the next boundary; whoever asks while one is being made, and wishes nothing
        else of it, gets the same. What it replaces stays stored.
        """
        id = await load("perdure.harness.compacting:begin")(self._harness.actions, self.id, instructions)
        await self._harness.resume()
        return Compaction(self._harness, self.id, id)

    async def reset(self, handoff: str | None = None, *, request_id: str | None = None) -> Submission:
        """Begin a new context, from a note if there is one: placed like a write. Between two rounds of tools it ends
        the run, whose inputs settle `reset`; what else is queued goes on in the new context. Nothing is deleted."""
        return await self._admit(reset_draft(handoff, request_id))

    async def wait_idle(self) -> None:
        """Wait until no run is open and no foreground task is live."""
        await self._harness.actions.wait_idle(self.id)

    async def agent(self) -> AgentNames:
        """The conversation's agent: names resolved to what is installed now."""
        names: AgentNames = await self._harness.agent.names(self.id)
        return names

    async def configure(
        self,
        *,
        model: Any = UNSET,
        thinking: Any = UNSET,
        extensions: Any = UNSET,
        tools: Any = UNSET,
        instructions: Any = UNSET,
        cwd: Any = UNSET,
        budget: Any = UNSET,
    ) -> None:
        """Change the conversation's agent, from the next request on. None clears a field back to the host's default.

        `extensions` and `tools` are exact lists, or `Add(*names)` / `Remove(*names)` against the default; `budget` is a
        `Budget` in place of the host's.
        """
        async with self._harness.session.transaction() as tx:
            await configure(
                tx,
                self.id,
                model=model,
                thinking=thinking,
                extensions=extensions,
                tools=tools,
                instructions=instructions,
                cwd=cwd,
                budget=budget,
            )

    async def fork(self, entry_id: EntryId, *, owner: TaskId | None = None, key: str | None = None) -> "Conversation":
        """A conversation that sees this one up to the entry, without copying it. The same key gives the same fork."""
        id: ConversationId = await self._harness.actions.fork(self.id, entry_id, owner=owner, key=key)
        return Conversation(self._harness, id)

    def watch(self, *, after: str | None = None) -> AbstractAsyncContextManager[Watch]:
        """Watch the conversation: `async with conversation.watch() as watch: async for frame in watch: …`

        `watch.value` is `{"conversation", "entries", "docs"}` as of now: the active transcript and the built-in
        documents (agent, live, inbox, usage). Each frame holds the operations of one commit. `after` is the cursor
        of a frame seen before: if what came since is at hand, `watch.resumed` is True and only that follows;
        otherwise the value now is the new beginning. Raises `NotFound` if there is no such conversation.
        """
        found: AbstractAsyncContextManager[Watch] = self._harness.views.conversation(self.id, after)
        return found

    def events(self, *, after: str | None = None) -> AbstractAsyncContextManager[EventStream]:
        """What happens here, told as events (`perdure.events`) of the same commits: first a `Snapshot`, then only
        what is new. A consumer that lags gets a fresh `Snapshot`. `after` as in `watch`."""
        found: AbstractAsyncContextManager[EventStream] = self._harness.views.events(self.id, after)
        return found
