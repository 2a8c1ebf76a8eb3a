"""An answer on its way to standing: hooks may send the model on, or start what acts once it stands."""

from typing import Any

import msgspec

from perdure.agent.agent import Agent
from perdure.agent.attachments import missing
from perdure.agent.calls import answer_message
from perdure.agent.entries import UserEntry, put
from perdure.agent.hooks import copy_of, decisions, has_hooks, start_all, task_list
from perdure.agent.runs import count_turn, finish_run
from perdure.agent.submissions import input_draft, queued_items
from perdure.base.errors import InvalidValue
from perdure.base.ids import EntryId, TaskId
from perdure.extensions.results import Continue, RunAnswer
from perdure.extensions.settled import Settled
from perdure.models.messages import Content, UserMessage
from perdure.tasks.decisions import Next
from perdure.tasks.outcomes import Completed
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction


async def ask_on_yield(this: Any, run: TaskRun, answer: EntryId) -> Next[Any]:
    """The answer is stored and the run still open: the first hook that decides says what comes next."""
    agent: Agent = run.host
    message = await answer_message(agent, run, answer)

    def check(given: Any) -> UserMessage | list[Any] | None:
        return said(given.input) if isinstance(given, Continue) else task_list(agent, given)

    decided: list[UserMessage | list[Any]] = await decisions(
        agent, run, "on_yield", lambda: RunAnswer(answer, copy_of(message)), check, first=True
    )
    if not decided:
        return await stand(this, run, answer)
    decision = decided[0]
    if isinstance(decision, UserMessage):
        return await go_on(this, run, answer, decision)
    async with run.transaction() as tx:
        if await is_steered(tx, run):
            await count_turn(tx, run.conversation_id)
            return tx.goto(this.prepare)
        started = start_all(agent, tx, decision)
        if not started:
            return tx.goto(this.yielded, answer, started)
        return tx.wait(started, "all_settled", this.yielded, answer, started)


async def after_yield_tasks(this: Any, run: TaskRun, answer: EntryId, tasks: list[TaskId]) -> Next[Any]:
    """The tasks have ended: the first of them, as they were created, that says so sends the model on."""
    agent: Agent = run.host
    for id, outcome in zip(tasks, await run.outcomes(tasks), strict=True):
        if not isinstance(outcome, Completed) or not isinstance(outcome.value, dict):
            continue
        if (given := outcome.value.get("continue")) is None:
            continue
        try:
            message = said(given)
        except InvalidValue as error:
            agent.report(f"what task {id} wants the model to go on with", error)
        else:
            return await go_on(this, run, answer, message)
    return await stand(this, run, answer)


async def go_on(this: Any, run: TaskRun, answer: EntryId, message: UserMessage) -> Next[Any]:
    """The answer does not stand: the model goes on with this message, or with what people said meanwhile."""
    agent: Agent = run.host
    lost = await agent.attachments.first_missing(message.content)
    if lost is not None:
        agent.report("what a hook wants the model to go on with", missing(lost))
        return await stand(this, run, answer)
    async with run.transaction() as tx:
        await count_turn(tx, run.conversation_id)
        if not await is_steered(tx, run):
            put(tx, run.conversation_id, UserEntry, message, task=run.task_id, data={"continues": answer})
        return tx.goto(this.prepare)


async def stand(this: Any, run: TaskRun, answer: EntryId) -> Next[Any]:
    """The answer stands: the run's inputs settle, what waits starts the next run, and `after_run` tasks begin."""
    agent: Agent = run.host
    wanted: list[list[Any]] = []
    if await has_hooks(agent, run, "after_run"):
        message = await answer_message(agent, run, answer)
        wanted = await decisions(
            agent,
            run,
            "after_run",
            lambda: RunAnswer(answer, copy_of(message)),
            lambda given: task_list(agent, given),
        )
    async with run.transaction() as tx:
        settled = Settled("done", answer=answer)
        await finish_run(tx, run.conversation_id, settled, agent.settings, type(this))
        started = start_all(agent, tx, [task for tasks in wanted for task in tasks])
        if started:
            return tx.wait(started, "all_settled", this.ran, answer)
        return tx.complete({"answer": answer})


def said(content: Any) -> UserMessage:
    """An input as the message that models read. Raises `InvalidValue` if it is none."""
    return UserMessage(msgspec.json.decode(input_draft(content).content, type=str | list[Content]))


async def is_steered(tx: TaskTransaction, run: TaskRun) -> bool:
    """Whether somebody has a word for this run, which goes before what a hook wants said."""
    return any(item["how"] == "steer" for item in await queued_items(tx, run.conversation_id))
