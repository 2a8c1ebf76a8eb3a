"""Asking the hooks of a point, and the tasks that some of them start."""

from collections.abc import Callable
from typing import Any, TypeVar

from perdure.agent.agent import Agent
from perdure.agent.foreign import LOST, asked, close_quietly
from perdure.agent.hook_context import HookContext
from perdure.base.errors import InvalidDefinition
from perdure.base.ids import TaskId
from perdure.models.messages import Message, decode_messages, encode_messages
from perdure.tasks.definition import task_definition
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction

M = TypeVar("M", bound=Message)
T = TypeVar("T")


async def decisions(
    agent: Agent,
    run: TaskRun,
    point: str,
    subject: Callable[[], Any],
    check: Callable[[Any], T | None],
    *,
    first: bool = False,
) -> list[T]:
    """What the hooks of a point decide, in the order of the extensions; with `first` only the first decision.

    Each hook gets a subject of its own. `check` gives the decision in an answer, None for none. A hook that raises, or
    whose answer `check` refuses by raising, is reported and passed over.
    """
    names = await agent.names(run.conversation_id)
    found: list[T] = []
    for hook in names.resolved.hooks_at(point):
        context = HookContext(agent, run, names)
        try:
            answer = await asked(hook.function, context, subject())
            decision = None if answer is None else check(answer)
        except LOST:
            raise
        except Exception as error:
            agent.report(f"hook {hook.name}", error)
            continue
        finally:
            await close_quietly(agent, context)
        if decision is not None:
            found.append(decision)
            if first:
                break
    return found


async def has_hooks(agent: Agent, run: TaskRun, *points: str) -> bool:
    """Whether anybody asks to be asked at one of these points."""
    resolved = (await agent.names(run.conversation_id)).resolved
    return any(resolved.hooks_at(point) for point in points)


def copy_of(message: M) -> M:
    """A message for foreign code: whatever it does to it, ours stays."""
    (copied,) = decode_messages(encode_messages([message]))
    return copied  # type: ignore[return-value]


def task_list(agent: Agent, answer: Any) -> list[Any] | None:
    """The tasks that a hook wants started, checked; None for none. Raises for anything else."""
    if not isinstance(answer, list | tuple):
        raise TypeError(f"a hook starts tasks by a list of them, not by {type(answer).__name__}")
    for task in answer:
        definition = task_definition(task)
        agent.session.tasks.check_installed(definition)
        definition.encode_input(task)
    return list(answer) or None


def start_all(agent: Agent, tx: TaskTransaction, tasks: list[Any]) -> list[TaskId]:
    """Create the tasks that hooks returned as children of the generation, in the commit that acts on the decision."""
    started = []
    for task in tasks:
        try:
            started.append(tx.create_task(task))
        except InvalidDefinition as error:  # uninstalled since it was returned
            agent.report("a task that a hook returned", error)
    return started
