"""What a durable function works with: steps that are stored, waits that park, values that stay the same."""

import asyncio
import inspect
import os
import uuid
from collections.abc import Awaitable, Callable, Generator, Sequence
from datetime import datetime
from typing import Any, Final, Literal, ParamSpec, TypeVar, overload

from perdure.base import jsonvalue
from perdure.base.clock import to_millis, to_seconds
from perdure.base.delta import Operation
from perdure.base.digest import sha256
from perdure.base.errors import Error, InvalidDecision, InvalidValue
from perdure.base.ids import TaskId
from perdure.base.typed import Codec, codec
from perdure.session.documents import Document
from perdure.tasks.decisions import Next
from perdure.tasks.outcomes import Outcome
from perdure.tasks.runtime import TaskRun
from perdure.tasks.scheduler import DoesNotFit
from perdure.tasks.signals import Signal

P = ParamSpec("P")
T = TypeVar("T")

StepsDoc: Final[Document[Any]] = Document(
    "perdure.steps", dict, scope="task", initial=lambda: {"log": []}, checked=False
)
"""What a durable function has asked for, in order: kind, name, and what came of it."""


class Parked(BaseException):
    """The function parks here. `finally` and `async with` around it run, and nothing may be asked for in them."""


class NonDeterministic(DoesNotFit):
    """A pass asked for something else than the stored one: the function, or what it depends on, has changed."""

    code = "non_deterministic"


class StepFailed(Error):
    """A step raised. In every pass alike, also in the one in which it did; `type` names what it raised."""

    code = "step_failed"
    certain_by_default = "stored"

    def __init__(self, name: str, message: str, type: str) -> None:
        super().__init__(f"step {name} failed: {type}: {message}")
        self.name = name
        self.message = message
        self.type = type


class StepInterrupted(Error):
    """A crash cut off a step that must not be repeated: it may have happened, wholly or in part."""

    code = "step_interrupted"
    certain_by_default = "unknown"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"step {name} was cut off and not repeated", hint='pass replay="safe" where a repetition does no harm'
        )
        self.name = name


class Pass:
    """One run of the function from its beginning. Keeps the place in what is stored."""

    def __init__(self, run: TaskRun, stored: Any, again: Any) -> None:
        self.run = run
        self.log: list[dict[str, Any]] = [dict(record) for record in (stored or {"log": []})["log"]]
        self.parking: Callable[[Any], Next[Any]] | None = None
        self._before = len(self.log)
        self._written = self._before
        self._asked = 0
        self._names: dict[str, int] = {}
        self._again = again
        self._misfit: NonDeterministic | None = None
        self._one_by_one = asyncio.Lock()
        """Of two steps that begin at once the first stores both intents: the other waits until they are flushed."""
        self._running: set[asyncio.Future[Any]] = set()

    def ask(self, kind: str, name: str, **new: Any) -> tuple[int, dict[str, Any]]:
        """The next thing asked for: its place and its record, found or begun. Raises `NonDeterministic`, `Parked`."""
        if self._misfit is not None:
            raise self._misfit
        if self.parking is not None:
            raise Parked
        if not name or not jsonvalue.is_strict(name):
            raise InvalidValue(f"a step's name is a text that is not empty, not {name!r}")
        self._names[name] = number = self._names.get(name, 0) + 1
        shown = name if number == 1 else f"{name}#{number}"
        place = self._asked
        self._asked += 1
        if place == len(self.log):
            self.log.append({"kind": kind, "name": shown, **new})
        record = self.log[place]
        if (record["kind"], record["name"]) != (kind, shown):
            self._misfit = NonDeterministic(
                f"at place {place + 1} {record['kind']} {record['name']!r} is stored, and this pass asks for"
                f" {kind} {shown!r}",
                hint="install the code that stored it, or give changed code another version and a migration",
            )
            raise self._misfit
        return place, record

    def was_cut_off(self, place: int) -> bool:
        """Whether an earlier pass stored the intent of what stands there."""
        return place < self._before

    async def write(self, tx: Any, *places: int) -> None:
        """Store what was begun since the last commit, and what changed at these places. It is progress."""
        ops: list[Operation] = [
            {"op": "replace", "path": f"/log/{place}", "value": self.log[place]}
            for place in places
            if place < self._written
        ]
        ops += [{"op": "add", "path": "/log/-", "value": record} for record in self.log[self._written :]]
        if ops:
            await tx.patch(StepsDoc, self.run.task_id, ops)
        self._written = len(self.log)
        progress = sum("done" in record for record in self.log)
        tx.checkpoint(self._again, len(self.log) + progress)

    async def store(self, *places: int) -> None:
        """`write` in a commit of its own."""
        async with self._one_by_one, self.run.transaction() as tx:
            await self.write(tx, *places)

    def park_with(self, decide: Callable[[Any], Next[Any]]) -> Parked:
        """End the pass: what decides is called with the transaction that stores the park."""
        self.parking = decide
        return Parked()

    async def park(self) -> Next[Any]:
        """Store the park that the function came to."""
        if self.parking is None:
            raise InvalidDecision("Parked was raised by other code than the steps")
        async with self.run.transaction() as tx:
            await self.write(tx)
            return self.parking(tx)

    async def sharing(self, work: Awaitable[T]) -> T:
        """Run it so that the pass does not end before it has."""
        running = asyncio.ensure_future(work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.cancel()
            raise

    async def drained(self) -> None:
        """Steps that still run, because the function parked or raised beside them, come to their end first."""
        while self._running:
            await asyncio.wait(self._running)

    def check_fits(self) -> None:
        """Raise what an `except` of the function may have swallowed."""
        if self._misfit is not None:
            raise self._misfit

    def check_whole(self) -> None:
        """The function came to its end: everything that is stored must have been asked for."""
        if self._asked < self._before:
            missing = self.log[self._asked]
            raise NonDeterministic(f"{missing['kind']} {missing['name']!r} is stored, and this pass ended before it")

    @property
    def again(self) -> Any:
        """The phase of the next pass."""
        return self._again


class Step(Awaitable[T]):
    """A step that was asked for. It begins when it is awaited."""

    __slots__ = ("_work",)

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work().__await__()


class Steps:
    """Handed to a durable function as its first argument. Once the pass has ended, everything raises."""

    def __init__(self, passed: Pass) -> None:
        self._pass = passed
        self.task_id: TaskId = passed.run.task_id
        self.conversation_id = passed.run.conversation_id

    @overload
    def step(
        self,
        name: str,
        function: Callable[P, Awaitable[T]],
        *args: Any,
        replay: Literal["safe", "unsafe"] = ...,
        **kwargs: Any,
    ) -> Step[T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[P, T],
        *args: Any,
        replay: Literal["safe", "unsafe"] = ...,
        **kwargs: Any,
    ) -> Step[T]: ...
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        replay: Literal["safe", "unsafe"] = "unsafe",
        **kwargs: Any,
    ) -> Step[Any]:
        """Do something once: `await run.step("charge", bank.charge, card)`.

        Its intent is stored, then it runs (a plain function in a thread), then its result is, as JSON by the function's
        return annotation; later passes get the stored one. What it raises comes out as `StepFailed`, in every pass. Cut
        off by a crash it runs again with `replay="safe"`, else `StepInterrupted` is raised here.
        """
        if replay not in ("safe", "unsafe"):
            raise InvalidValue(f'replay is "safe" or "unsafe", not {replay!r}')
        place, record = self._pass.ask("step", name)
        return Step(lambda: self._step(place, record, function, args, kwargs, replay))

    async def _step(
        self, place: int, record: dict[str, Any], function: Callable[..., Any], args: Any, kwargs: Any, replay: str
    ) -> Any:
        result = _result_codec(function, record["name"])
        if "done" not in record:
            if self._pass.was_cut_off(place) and replay == "unsafe":
                record["done"] = {"interrupted": True}
                await self._pass.store(place)
            else:
                await self._pass.sharing(self._run_step(place, record, function, args, kwargs, result))
        done = record["done"]
        if done.get("interrupted"):
            raise StepInterrupted(record["name"])
        if "error" in done:
            raise StepFailed(record["name"], done["error"]["message"], done["error"]["type"])
        return result.from_json(done["result"])

    async def _run_step(
        self, place: int, record: dict[str, Any], function: Any, args: Any, kwargs: Any, result: Codec[Any]
    ) -> None:
        if not self._pass.was_cut_off(place):
            await self._pass.store()  # the intent: from here on it may have happened
        try:
            if inspect.iscoroutinefunction(function):
                value = await function(*args, **kwargs)
            else:
                value = await asyncio.to_thread(function, *args, **kwargs)
                if inspect.isawaitable(value):
                    value = await value
            record["done"] = {"result": result.to_json(value)}
        except Exception as error:
            what = error.what if isinstance(error, Error) else str(error)
            record["done"] = {"error": {"message": what, "type": type(error).__name__}}
        await self._pass.store(place)

    async def gather(self, *steps: Step[Any]) -> list[Any]:
        """Run steps side by side: their results in order. All come to their end; then the first failure is raised."""
        results = await asyncio.gather(*steps, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return list(results)

    async def signal(self, signal: Signal[T], key: str, *, timeout: float | None = None) -> T:
        """Park until a value comes for the key of this task, and give it. Raises `TimeoutError` after `timeout` seconds
        from when this was first asked for."""
        run = self._pass.run
        until = None if timeout is None else to_millis(run.now() + timeout)
        _, record = self._pass.ask("signal", f"{signal.name}/{key}", until=until)
        state = await run.read_signal(signal, key)
        if state is None:
            until = record["until"]
            deadline = None if until is None else until / 1000
            raise self._pass.park_with(
                lambda tx: tx.sleep(self._pass.again, [signal.key(key)], deadline, len(self._pass.log))
            )
        if state.expired:
            raise TimeoutError(f"nothing came for {signal.name}/{key}")
        return state.value

    async def sleep(self, seconds: float | None = None, *, until: float | datetime | None = None) -> None:
        """Park for some seconds, or until a time. Both count from when this was first asked for."""
        if (seconds is None) == (until is None):
            raise InvalidValue("sleep takes seconds, or until=")
        run = self._pass.run
        end = run.now() + seconds if seconds is not None else to_seconds(until)  # type: ignore[arg-type]
        _, record = self._pass.ask("sleep", "sleep", until=to_millis(end))
        if to_millis(run.now()) < record["until"]:
            raise self._pass.park_with(
                lambda tx: tx.sleep(self._pass.again, (), record["until"] / 1000, len(self._pass.log))
            )

    async def tasks(
        self, tasks: Sequence[Any], *, policy: Literal["all_settled", "fail_fast"] = "all_settled"
    ) -> list[Outcome]:
        """Create tasks that this one owns, park until all have ended, and give their outcomes in order. With
        `fail_fast` the first bad end aborts the others."""
        if policy not in ("all_settled", "fail_fast"):
            raise InvalidDecision(f'steps wait for all tasks: "all_settled" or "fail_fast", not {policy!r}')
        place, record = self._pass.ask("tasks", "tasks")
        run = self._pass.run
        if not tasks:
            return []
        if "ids" not in record:
            async with run.transaction() as tx:
                record["ids"] = [tx.create_task(each) for each in tasks]
                await self._pass.write(tx, place)
        ids = [TaskId(id) for id in record["ids"]]
        async with run.transaction() as tx:
            live = any(tx.live_task(id) is not None for id in ids)
        if live:
            raise self._pass.park_with(lambda tx: tx.wait(ids, policy, self._pass.again, len(self._pass.log)))
        return await run.outcomes(ids)

    def now(self) -> float:
        """Seconds since the epoch, by the injected clock; the same in every pass."""
        _, record = self._pass.ask("now", "now", value=self._pass.run.now())
        return float(record["value"])

    def random(self) -> float:
        """A number from 0 up to 1; the same in every pass. Not for secrets."""
        digest = sha256(self._seed("random"))
        return int.from_bytes(digest[:7], "big") / 2**56

    def uuid(self) -> uuid.UUID:
        """A random id; the same in every pass: a key for work outside."""
        return uuid.UUID(bytes=sha256(self._seed("uuid"))[:16], version=4)

    def _seed(self, what: str) -> bytes:
        _, record = self._pass.ask(what, what, value=os.urandom(16).hex())
        return bytes.fromhex(record["value"])


def _result_codec(function: Any, name: str) -> Codec[Any]:
    """By the return annotation; a function without one, or whose annotation cannot be read, gives JSON."""
    try:
        hint = inspect.signature(function, eval_str=True).return_annotation
    except (NameError, TypeError, ValueError):
        hint = inspect.Signature.empty
    return codec(Any if hint is inspect.Signature.empty else hint, where=f"result of step {name}")
