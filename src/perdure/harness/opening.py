"""How a session is opened: its agent, the rules of its commits and the built-in tasks, put together.

`Harness.open` loads it when it is first called: half of what an agent runs on comes with it, and importing stays quick.
"""

from typing import Any, Final

from perdure.agent.advance import advance_generations
from perdure.agent.agent import Agent
from perdure.agent.compactions import COMPACTION, COMPACTION_TASK
from perdure.agent.configure import begin_owned
from perdure.agent.generation import Generation
from perdure.agent.nested import NESTED, NESTED_TASK
from perdure.agent.notify import notify_settled
from perdure.agent.rules import check_entries, close_ended
from perdure.agent.settings import Settings
from perdure.agent.tool_task import ToolTask
from perdure.base.clock import Clock, SystemClock
from perdure.extensions.registry import Registry
from perdure.harness.actions import Actions
from perdure.harness.environments import env_function
from perdure.harness.harness import Harness
from perdure.harness.reports import Reports
from perdure.models.protocol import Models
from perdure.models.provider import ProviderModels
from perdure.session.session import Session
from perdure.storage.protocol import Storage
from perdure.tasks.definition import TaskDefinition, task_definition
from perdure.tasks.tasks import Tasks
from perdure.tasks.transaction import TaskTransaction

BUILTIN_TASKS: Final[dict[str, TaskDefinition | str]] = {
    **{made.kind: made for made in map(task_definition, (Generation, ToolTask))},
    COMPACTION: COMPACTION_TASK,
    NESTED: NESTED_TASK,
}


async def open_harness(
    storage: Storage,
    registry: Registry,
    models: Models | None,
    env: Any,
    settings: Settings,
    clock: Clock | None,
    recover: bool,
) -> Harness:
    """A harness on a storage (see `Harness.open`); the session is closed again if anything fails."""
    session = await Session(storage, transaction_type=TaskTransaction, clock=clock or SystemClock()).open()
    try:
        reports = Reports(session.clock)
        owned = [ProviderModels()] if models is None else []
        agent = Agent(
            session,
            registry,
            owned[0] if models is None else models,
            env_function(env),
            settings,
            BUILTIN_TASKS,
            reports.add,
        )
        tasks = Tasks(session, agent, host=agent, restart_limit=settings.restart_limit, report=reports.add)
        session.rules.append(begin_owned)
        session.rules.append(check_entries)
        session.rules.append(agent.attachments.check)
        session.rules.append(close_ended)
        session.rules.append(lambda tx: advance_generations(agent, tx))
        session.rules.append(notify_settled)  # last: it tells what all others settled
        tasks.orphans = lambda: agent.settings.orphan_missing
        await tasks.open(recover=recover)
        return Harness(session, agent, tasks, reports, Actions(session, agent, tasks, Generation), *owned)
    except BaseException:
        await session.close()
        raise
