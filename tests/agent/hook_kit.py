"""Hooks that give set answers, and tasks for them to start."""

from typing import Any

from perdure import Extension, TaskRun, phase, task
from tests.agent.kit import Gate

gates: dict[str, Gate] = {}
log: list[str] = []


@task("test.hooked", version=1)
class Hooked:
    """Completes with what it was given, once its gate is open."""

    name: str
    result: Any = None
    gate: str = ""

    @phase(first=True)
    async def go(self, run: TaskRun) -> Any:
        log.append(f"{self.name} runs")
        if self.gate:
            await gates.setdefault(self.gate, Gate()).stop()
        return run.complete(self.result)

    async def abort(self, run: TaskRun) -> Any:
        log.append(f"{self.name} aborted")
        return run.aborted()


@task("test.not_installed", version=1)
class NotInstalled:
    @phase(first=True)
    async def go(self, run: TaskRun) -> Any:
        return run.complete(None)


def tools() -> Extension:
    extension = Extension("tools", tasks=[Hooked])

    @extension.tool
    async def echo(ctx: Any, text: str) -> str:
        """Say it."""
        return text

    return extension


def hooked(point: str, *answers: Any, name: str = "hooks") -> Extension:
    """An extension that gives these answers, one each time it is asked, then None. An exception is raised."""
    extension, given = Extension(name), iter(answers)

    async def hook(ctx: Any, subject: Any) -> Any:
        answer = next(given, None)
        log.append(f"{name} asked")
        if isinstance(answer, BaseException):
            raise answer
        return answer(subject) if callable(answer) else answer

    extension.hook(point)(hook)
    return extension
