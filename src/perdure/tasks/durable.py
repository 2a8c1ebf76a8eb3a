"""Durable functions: a straight async function whose steps are stored, so that a crash repeats none that ended.

The function runs anew from its beginning in every pass: after a crash, and after each park. What it asked its `Steps`
for is kept in order in a document of the task; a later pass gets the stored answers until it comes to what is new.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast, get_type_hints

from perdure.base.errors import InvalidDefinition
from perdure.tasks.decisions import Next
from perdure.tasks.definition import Task, phase, task
from perdure.tasks.runtime import TaskRun
from perdure.tasks.steps import NonDeterministic, Parked, Pass, Steps, StepsDoc

P = ParamSpec("P")
R = TypeVar("R")

_KINDS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class DurableFunction(Protocol[P, R]):
    """What `@durable` leaves: called with the function's arguments it gives a task to create, like any other."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Task[R]: ...


def durable(
    kind: str, *, version: int = 1
) -> Callable[[Callable[Concatenate[Steps, P], Awaitable[R]]], DurableFunction[P, R]]:
    """Make an `async def f(run: Steps, …) -> R` a kind of task; create it with `create_task(f(…), …)`.

    What touches the world belongs in steps; everything else must go the same way in every pass. A pass that asks for
    another step than the stored one blocks the task (`NonDeterministic`) until fitting code is installed. Its result
    and arguments are JSON by their annotations. Raises `InvalidDefinition`.
    """

    def define(function: Callable[Concatenate[Steps, P], Awaitable[R]]) -> DurableFunction[P, R]:
        made: Any = task(kind, version=version)(_task_class(function, kind))
        return made  # type: ignore[no-any-return]

    return define


def _task_class(function: Any, kind: str) -> type:
    where = f"durable function {kind}"
    if not inspect.iscoroutinefunction(function):
        raise InvalidDefinition(f"{where} is an async def")
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (parameters[0].POSITIONAL_ONLY, _KINDS[0]):
        raise InvalidDefinition(f"{where} takes the steps first: async def f(run: Steps, …)")
    for parameter in parameters[1:]:
        if parameter.kind not in _KINDS:
            raise InvalidDefinition(f"{where}: the parameter {parameter.name!r} cannot be stored by name")
    hints = _hints(function, where)
    names = [parameter.name for parameter in parameters[1:]]
    result = hints.get("return", Any)

    async def first_pass(self: Any, run: TaskRun) -> Next[Any]:
        """The first pass."""
        return await _one_pass(self, run, function, names, self.next_pass)

    async def next_pass(self: Any, run: TaskRun, at: int) -> Next[Any]:
        """A later pass. `at` counts what was stored, so that each checkpoint is another one."""
        return await _one_pass(self, run, function, names, self.next_pass)

    body: dict[str, Any] = {
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
        "__doc__": function.__doc__,
        "__annotations__": {name: hints.get(name, Any) for name in names},
        "__orig_bases__": (cast(Any, Task)[result],),
        "first_pass": phase(first=True)(first_pass),
        "next_pass": phase(next_pass),
        **{p.name: p.default for p in parameters[1:] if p.default is not p.empty},
    }
    return type(function.__name__, (Task,), body)


def _hints(function: Any, where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidDefinition(
            f"{where}: an annotation cannot be resolved: {error}", hint="its types stand at the top of its module"
        ) from error


async def _one_pass(instance: Any, run: TaskRun, function: Any, names: list[str], again: Any) -> Next[Any]:
    stored: Any = await run.read(StepsDoc, run.task_id)
    passed = Pass(run, stored, again)
    try:
        try:
            result = await function(Steps(passed), **{name: getattr(instance, name) for name in names})
        finally:
            await passed.drained()
    except Parked:
        passed.check_fits()
        return await passed.park()
    except asyncio.CancelledError:
        raise
    except Exception:
        passed.check_fits()
        raise
    passed.check_fits()
    if passed.parking:
        raise InvalidDefinition("the function went on while it parked", hint="let Parked pass: it is no Exception")
    passed.check_whole()
    return run.complete(result)


__all__ = ["DurableFunction", "NonDeterministic", "Steps", "durable"]
