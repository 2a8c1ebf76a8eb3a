"""Scripts in the test's own process: an evaluator without the boundary, which speaks the same lines."""

from collections import deque
from collections.abc import Awaitable, Callable, Generator
from random import Random
from typing import Any, Literal

from perdure.subagents.engine.scripts import (
    Begin,
    Emit,
    EvaluatorGone,
    FromScript,
    Log,
    Propose,
    Returned,
    Show,
    Threw,
    ToScript,
    Used,
    Waiting,
)

Main = Callable[["Runs", Any], Awaitable[Any]]


class Pending:
    """A proposed call; awaiting it gives its result."""

    def __init__(self, runs: "Runs", keys: list[str], *, first: bool = False) -> None:
        self._runs = runs
        self._keys = keys
        self._first = first

    def __await__(self) -> Generator[None, None, Any]:
        wanted = 1 if self._first else len(self._keys)
        while len(found := [key for key in self._runs.results if key in self._keys]) < wanted:
            yield
        if self._first:
            return self._runs.results[found[0]]
        return [self._runs.results[key] for key in self._keys]


class Runs:
    """What a script has."""

    def __init__(self, said: deque[FromScript]) -> None:
        self._said = said
        self.results: dict[str, Any] = {}
        self.moment = 0.0
        self._random = Random(0)

    def begin(self, now: float, seed: int) -> None:
        self.moment, self._random = now, Random(seed)

    def start(self, key: Any, **spec: Any) -> Pending:
        self._said.append(Propose(key=key, spec={"agent": "worker", "task": f"Do {key}", **spec}))
        return Pending(self, [key], first=True)

    def all(self, *keys: str, **spec: Any) -> Pending:
        for key in keys:
            self.start(key, **spec)
        return Pending(self, list(keys))

    def race(self, *keys: str, **spec: Any) -> Pending:
        self.all(*keys, **spec)
        return Pending(self, list(keys), first=True)

    def emit(self, value: Any) -> None:
        self._said.append(Emit(value=value))

    def log(self, text: str) -> None:
        self._said.append(Log(level="info", text=text))

    def now(self) -> float:
        self._said.append(Used(what="now", value=self.moment))
        return self.moment

    def random(self) -> float:
        value = self._random.random()
        self._said.append(Used(what="random", value=value))
        return value


class Inline:
    """One incarnation."""

    def __init__(self, main: Main, told: list[ToScript]) -> None:
        self._main = main
        self._said: deque[FromScript] = deque()
        self._runs = Runs(self._said)
        self._code: Any = None
        self._told = told
        self.dead = False

    async def say(self, line: ToScript) -> None:
        if self.dead:
            raise EvaluatorGone("it was ended")
        self._told.append(line)
        self._runs.begin(line.now, line.seed)
        if isinstance(line, Begin):
            self._code = self._main(self._runs, line.args).__await__()
        else:
            assert isinstance(line, Show)
            self._runs.results[line.key] = line.result
        try:
            self._code.send(None)
        except StopIteration as end:
            self._said.append(Returned(value=end.value))
        except Exception as error:
            self._said.append(Threw(error=f"{type(error).__name__}: {error}"))
        else:
            self._said.append(Waiting())

    async def hear(self) -> FromScript:
        if self.dead or not self._said:
            raise EvaluatorGone("it was ended")
        return self._said.popleft()

    async def close(self) -> None:
        self.dead = True


class InlineEvaluators:
    """Starts incarnations of `main`, which a test may exchange."""

    def __init__(self, main: Main) -> None:
        self.main = main
        self.made: list[Inline] = []
        self.told: list[ToScript] = []

    async def start(self, language: Literal["python", "javascript"], name: str) -> Inline:
        self.made.append(Inline(self.main, self.told))
        return self.made[-1]
