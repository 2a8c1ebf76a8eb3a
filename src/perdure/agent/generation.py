"""The task that works on a run: prepare a request, stream it, start its tools, go round again, answer."""

from typing import Any

from perdure.agent.agent import Agent
from perdure.agent.answers import after_yield_tasks, ask_on_yield
from perdure.agent.deferred import cancel_deferred
from perdure.agent.documents import AgentDoc, LiveDoc
from perdure.agent.prepare import due_request, render_sections, spent_budget
from perdure.agent.request import Request, Waited
from perdure.agent.resets import end_by_reset, reset_comes
from perdure.agent.room import was_placed
from perdure.agent.rounds import ask_after_tools, end_round, start_next_call
from perdure.agent.runs import close_run, go_on_after_abort
from perdure.agent.streaming import keep_partial
from perdure.base.ids import EntryId, TaskId
from perdure.extensions.settled import Settled
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun


@task("perdure.generation", version=1)
class Generation:
    """One run of a conversation, and what its end has started."""

    @phase(first=True)
    async def prepare(self, run: TaskRun, again: int = 0, waited: Waited = "") -> Next[Any]:
        """Fix prompt, tools, model and the newest entry in one commit; what is queued for this boundary joins."""
        return await _prepare(self, run, again, waited)

    @phase
    async def request(
        self,
        run: TaskRun,
        model: str,
        up_to: EntryId,
        thinking: str | None = None,
        attempt: int = 1,
        empty: int = 0,
        waited: Waited = "",
    ) -> Next[Any]:
        """Stream exactly the prepared request. Entered again after a crash: the partial is kept, the request resent."""
        return await Request(self, run, model, up_to, thinking, attempt, empty, waited).go()

    @phase
    async def poll(
        self,
        run: TaskRun,
        model: str,
        up_to: EntryId,
        handle: Any,
        since: float,
        failures: int,
        thinking: str | None = None,
        attempt: int = 1,
        empty: int = 0,
        waited: Waited = "",
    ) -> Next[Any]:
        """Ask for an answer that the provider had put off, as batch interfaces do."""
        return await Request(self, run, model, up_to, thinking, attempt, empty, waited).poll(handle, since, failures)

    @phase
    async def compacted(self, run: TaskRun, compaction: TaskId) -> Next[Any]:
        """The summary that the request waited for has been placed, or has come to nothing."""
        return await _prepare(self, run, 0, "blocking")

    @phase
    async def shortened(self, run: TaskRun, compaction: TaskId, code: str, message: str) -> Next[Any]:
        """The provider refused the context as too long, and it was compacted once: ask once more, or give up."""
        if await was_placed(run, compaction):
            return await _prepare(self, run, 0, "overflow")
        async with run.transaction() as tx:
            await close_run(
                tx, run.conversation_id, Settled("unanswered", reason="failed", detail=f"{code}: {message}")
            )
            return tx.fail({"code": code, "message": message})

    @phase
    async def next_call(self, run: TaskRun, answer: EntryId, calls: list[TaskId], done: int) -> Next[Any]:
        """A sequential round: the next call starts when the one before has ended."""
        return await start_next_call(self, run, answer, done)

    @phase
    async def boundary(self, run: TaskRun, answer: EntryId) -> Next[Any]:
        """All calls of the round have ended."""
        return await ask_after_tools(self, run, answer)

    @phase
    async def rounded(self, run: TaskRun, answer: EntryId, tasks: list[TaskId]) -> Next[Any]:
        """So have the tasks that `after_tools` hooks started."""
        return await end_round(self, run, answer, tasks)

    @phase
    async def answered(self, run: TaskRun, answer: EntryId) -> Next[Any]:
        """The answer is stored, the run is open, and hooks want to be asked about it."""
        return await ask_on_yield(self, run, answer)

    @phase
    async def yielded(self, run: TaskRun, answer: EntryId, tasks: list[TaskId]) -> Next[Any]:
        """The tasks that an `on_yield` hook started have ended."""
        return await after_yield_tasks(self, run, answer, tasks)

    @phase
    async def ran(self, run: TaskRun, answer: EntryId) -> Next[Any]:
        """The run was closed before; the tasks that `after_run` hooks started have ended."""
        return run.complete({"answer": answer})

    async def abort(self, run: TaskRun) -> Next[Any]:
        """The run was stopped: what came so far stays in the transcript, its inputs settle `aborted`."""
        await cancel_deferred(run)
        async with run.transaction() as tx:
            live: Any = await tx.value_of(LiveDoc, run.conversation_id)
            if live is not None and live["run"] is not None and live["run"]["generation"] == run.task_id:
                await keep_partial(tx, run.conversation_id, run.task_id, "aborted")
                await close_run(tx, run.conversation_id, Settled("unanswered", reason="aborted"))
                await go_on_after_abort(tx, run.conversation_id, Generation)
            return tx.aborted()


async def _prepare(this: Generation, run: TaskRun, again: int, waited: Waited) -> Next[Any]:
    agent: Agent = run.host
    conversation = run.conversation_id
    names = await agent.names(conversation)
    if names.model is None:
        detail = "no model: configure the conversation with model='provider:model', or set settings.default_model"
        return await _give_up(run, Settled("unanswered", reason="no_model", detail=detail))
    await agent.transcripts.get(conversation)
    rendered = await render_sections(agent, conversation, names)
    over = await spent_budget(agent, conversation)
    async with run.transaction() as tx:
        if over is not None:
            await close_run(tx, conversation, Settled("unanswered", reason="budget", detail=over))
            return tx.complete(None)
        if await reset_comes(tx, conversation):
            return await end_by_reset(this, tx, run)
        names = agent.names_of(conversation, await tx.value_of(AgentDoc, conversation))
        due = await due_request(agent, tx, run.task_id, conversation, names, rendered)
        if due is None:
            return tx.goto(this.prepare, again + 1, waited)
        return tx.goto(this.request, due.model, due.up_to, due.thinking, waited=waited)


async def _give_up(run: TaskRun, settled: Settled) -> Next[Any]:
    async with run.transaction() as tx:
        await close_run(tx, run.conversation_id, settled)
        return tx.fail({"code": settled.reason or "failed", "message": settled.detail or settled.reason or "failed"})
