"""Runs one Python workflow script. See `process` for how it is started.

Lines of JSON come in and go out on the standard streams (see `engine.scripts`). The script gets no module, no file and
no clock: what would open something is missing from its names, and the kernel refuses it to whoever finds a way around.
"""

import ast
import builtins
import json
import os
from typing import Any

from perdure.subagents.evaluator import boundary

MISSING = {
    "open", "exec", "eval", "compile", "input", "breakpoint", "__import__", "globals", "locals", "vars", "exit", "quit",
    "help", "memoryview", "copyright", "credits", "license",
}  # fmt: skip
SCRIPT = "<workflow>"


def say(**line: Any) -> None:
    """One line out."""
    os.write(1, json.dumps(line, allow_nan=False).encode("utf-8", "surrogatepass") + b"\n")


_pending = bytearray()


def hear(pending: Any = _pending) -> Any:
    """One line in; None at the end."""
    while b"\n" not in pending:
        more = os.read(0, 1 << 16)
        if not more:
            return None
        pending += more
    line, _, rest = bytes(pending).partition(b"\n")
    pending[:] = rest
    return json.loads(line)


def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise TypeError("arguments and results are not for changing")


class Frozen(dict[Any, Any]):
    """An object of JSON that cannot be changed; its members are attributes, too."""

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = refuse

    def __getattr__(self, name: Any) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no {name!r}; there is {', '.join(map(str, self)) or 'nothing'}") from None


class FrozenList(list[Any]):
    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = sort = reverse = __iadd__ = refuse

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, str):
            raise TypeError(f"the results are in the order in which they were asked for: by number, not {at!r}")
        return super().__getitem__(at)


def frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return Frozen({key: frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return FrozenList(frozen(item) for item in value)
    return value


class Wait:
    """Something to await: proposed calls and tasks of the script. Ready when all, or the first, have ended."""

    def __init__(self, parts: Any, pick: Any) -> None:
        self.parts = parts
        self.pick = pick

    def __await__(self) -> Any:
        while True:
            ended = [part for part in self.parts if part.ended]
            if self.pick == "first" and ended:
                return min(ended, key=lambda part: part.order).result()
            if self.pick != "first" and len(ended) == len(self.parts):
                break
            yield
        if self.pick == "one":
            return self.parts[0].result()
        return FrozenList(part.result() for part in self.parts)


class Part:
    ended = False
    order = 0
    value: Any = None
    error: Any = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class Task(Part):
    """A coroutine of the script's own, side by side with others."""

    def __init__(self, script: Any, coroutine: Any) -> None:
        self.script = script
        self.coroutine = coroutine

    def step(self) -> Any:
        try:
            self.coroutine.send(None)
        except StopIteration as end:
            self.value = end.value
        except Exception as error:
            self.error = error
        else:
            return False
        self.ended, self.order = True, self.script.count()
        return True


class Script:
    """One incarnation."""

    def __init__(self) -> None:
        self.calls: dict[str, Part] = {}
        self.tasks: list[Task] = []
        self.inputs: dict[str, str] = {}
        self.moment = 0.0
        self.state = 0
        self.counted = 0

    def count(self) -> Any:
        self.counted += 1
        return self.counted

    def stretch(self, now: Any, seed: Any) -> None:
        self.moment, self.state = now, (seed ^ 0x9E3779B97F4A7C15) & (2**64 - 1) or 1

    def run(self, key: Any, spec: Any = None, **fields: Any) -> Any:
        """Propose a call; awaiting it gives its result."""
        if spec is not None and not isinstance(spec, dict):
            raise TypeError("runs.run(key, {...})")
        given = {**(spec or {}), **fields}
        checked = json.loads(json.dumps(given, allow_nan=False))
        call = self.calls.setdefault(key if isinstance(key, str) else repr(key), Part())
        say(type="propose", key=key, spec=checked)
        return Call([call], "one")

    def part(self, item: Any) -> Any:
        if isinstance(item, Wait) and item.pick == "one":
            return item.parts[0]
        if hasattr(item, "send"):
            task = Task(self, item)
            self.tasks.append(task)
            return task
        raise TypeError(f"runs.run(…), or a coroutine, not {type(item).__name__}")

    def all(self, items: Any) -> Any:
        """Await all; their results in the order given."""
        return Wait([self.part(item) for item in items], "all")

    def first(self, items: Any) -> Any:
        """Await whichever ends first; its result."""
        return Wait([self.part(item) for item in items], "first")

    def input(self, name: Any) -> Any:
        if name not in self.inputs:
            raise KeyError(f"no input {name!r}; there are: {', '.join(self.inputs) or 'none'}")
        return self.inputs[name]

    def now(self) -> Any:
        say(type="used", what="now", value=self.moment)
        return self.moment

    def random(self) -> Any:
        state = self.state
        state ^= (state << 13) & (2**64 - 1)
        state ^= state >> 7
        state ^= (state << 17) & (2**64 - 1)
        self.state = state
        value = (state >> 11) / 2**53
        say(type="used", what="random", value=value)
        return value

    def emit(self, value: Any) -> None:
        say(type="emit", value=json.loads(json.dumps(value, allow_nan=False)))

    def log(self, *values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
        say(type="log", level="info", text=sep.join(map(str, values)))


class Call(Wait):
    """A proposed call."""


class Runs:
    """`runs` of a script."""

    def __init__(self, script: Any) -> None:
        self.run, self.all, self.first, self.input = script.run, script.all, script.first, script.input


def compiled(source: Any, path: Any) -> Any:
    """`async def main(runs, args)`, or a body with await and return at its top."""
    tree = ast.parse(source, path or SCRIPT, "exec") if "async def main" in source else None
    has_main = tree is not None and any(
        isinstance(node, ast.AsyncFunctionDef) and node.name == "main" for node in tree.body
    )
    if has_main:
        return compile(tree, path or SCRIPT, "exec"), True  # type: ignore[arg-type]
    body = "\n".join("    " + line for line in source.splitlines()) or "    pass"
    return compile(f"async def main(runs, args):\n{body}\n", path or SCRIPT, "exec"), False


def no_import(*args: Any, **kwargs: Any) -> Any:
    raise ImportError("workflow scripts import nothing")


def begin(script: Any, line: Any) -> Any:
    script.inputs = line.get("inputs", {})
    names = {name: value for name, value in vars(builtins).items() if name not in MISSING}
    names["__import__"], names["print"] = no_import, script.log
    world = {
        "__builtins__": names, "__name__": "workflow", "runs": Runs(script), "emit": script.emit, "now": script.now,
        "random": script.random, "args": frozen(line.get("args")),
    }  # fmt: skip
    code, _ = compiled(line["source"], line.get("path", ""))
    exec(code, world)
    main = Task(script, world["main"](world["runs"], world["args"]))
    script.tasks.append(main)
    return main


def settle(script: Any) -> None:
    """Run until nothing can go on."""
    moved = True
    while moved:
        moved = False
        for task in script.tasks:  # those that are begun meanwhile come last
            if not task.ended and task.step():
                moved = True


def told(error: Any) -> Any:
    kind = type(error).__name__
    where = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name in ("main",):
            where = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{kind}: {error}{where}"


def main() -> None:
    script = Script()
    task: Any = None
    boundary.limit()
    boundary.close_in()
    while (line := hear()) is not None:
        try:
            script.stretch(line.get("now", 0.0), line.get("seed", 0))
            if line["type"] == "begin":
                task = begin(script, line)
            else:
                call = script.calls[line["key"]]
                call.value, call.ended, call.order = frozen(line["result"]), True, script.count()
            settle(script)
            if not task.ended:
                say(type="waiting")
                continue
            if task.error is not None:
                raise task.error
            value = json.loads(json.dumps(task.value, allow_nan=False))
        except MemoryError:
            say(type="limited", what="memory")
            return
        except (TypeError, ValueError) as error:
            returned = task is not None and task.ended and task.error is None
            say(type="threw", error=f"its return value is no JSON: {error}" if returned else told(error))
        except BaseException as error:
            say(type="threw", error=told(error))
        else:
            say(type="returned", value=value)


if __name__ == "__main__":
    main()
