"""Workflow scripts in their own processes, from the request to the result."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Error
from perdure.subagents.engine.scripts import Begin, EvaluatorGone, Limited, Returned, Show, Threw
from perdure.subagents.evaluator.process import ProcessEvaluators
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]

ROLLING = """
async def main(runs, args):
    def work(n):
        return runs.run(f"w{n}", {"agent": "worker", "task": f"Part {n}"})

    async def checked(n):
        done = await work(n)
        if not done.ok:
            return None
        return await runs.run(f"r{n}", {"agent": "reviewer", "task": f"Review: {done.output}"})

    reviews = await runs.all([checked(n) for n in range(args.parts)])
    good = [review.output for review in reviews if review]
    emit({"good": len(good)})
    return {"good": good, "note": runs.input("note")}
"""

JAVASCRIPT = """
const first = await runs.run("a", { agent: "worker", task: "One" });
const [b, c] = await runs.all([runs.run("b", { agent: "worker", task: first.output }),
                               runs.run("c", { agent: "worker", task: "Three" })]);
return { outputs: [first.output, b.output, c.output], ok: b.ok, at: now() > 0, n: args.n };
"""


async def evaluated(source: str, language: Any = "python", args: Any = None, *shows: Show) -> list[Any]:
    """What a script says from its beginning, and after each result."""
    evaluator = await ProcessEvaluators().start(language, "w")
    said: list[Any] = []
    try:
        lines: list[Begin | Show] = [Begin(source=source, path="w.py", args=args, now=5.0, seed=3), *shows]
        for line in lines:
            await evaluator.say(line)
            while True:
                said.append(await evaluator.hear())
                if type(said[-1]).__name__ in ("Waiting", "Returned", "Threw", "Limited"):
                    break
    finally:
        await evaluator.close()
    return said


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("import os", "import nothing"),
        ("from socket import socket", "import nothing"),
        ("return open('/etc/passwd').read()", "'open' is not defined"),
        ("return eval('1')", "'eval' is not defined"),
        ("args['n'] = 2", "not for changing"),
        ("return lambda: 1", "no JSON"),
        ("return float('nan')", "no JSON"),
        ("raise ValueError('no way')", "ValueError: no way"),
        ("return (", "SyntaxError"),
        ("r = await runs.run('a', {'x': object()})", "TypeError"),
    ],
)
async def test_r061_r063_what_a_script_may_not_do_is_an_error_with_words(source: str, word: str) -> None:
    said = await evaluated(source, args={"n": 1})
    assert isinstance(said[-1], Threw)
    assert word in said[-1].error


ESCAPE = """
classes = ().__class__.__base__.__subclasses__()
wrap = [one for one in classes if one.__name__ == "_wrap_close"][0]
os = wrap.__init__.__globals__
tried = []
for name, arguments in [("open", ("/etc/passwd", 0)), ("fork", ()), ("system", ("touch /tmp/perdure-escaped",)),
                        ("kill", (1, 0)), ("unlink", ("/tmp/x",)), ("mkdir", ("/tmp/perdure-escaped",))]:
    try:
        tried.append(f"{name}: {os[name](*arguments)}")
    except OSError as error:
        tried.append(f"{name}: {error.errno}")
return tried
"""


async def test_whoever_finds_a_way_around_the_names_is_refused_by_the_kernel() -> None:
    (said,) = await evaluated(ESCAPE)
    assert isinstance(said, Returned)
    tried = dict(one.split(": ") for one in said.value)
    assert tried.pop("system") != "0"
    assert set(tried.values()) == {"1"}, "EPERM for each"
    assert not os.path.exists("/tmp/perdure-escaped")  # noqa: ASYNC240


@pytest.mark.parametrize(("language", "source"), [("python", "while True: pass"), ("javascript", "while (true) {}")])
async def test_r067_a_loop_without_end_is_ended(language: str, source: str) -> None:
    (said,) = await evaluated(source, language)
    assert isinstance(said, Limited)


async def test_r067_memory_is_bounded() -> None:
    (said,) = await evaluated("x = bytearray(10**9); return 1")
    assert isinstance(said, Limited)
    assert said.what == "memory"


async def test_r060_results_are_shown_one_at_a_time_and_now_and_random_are_the_same_in_a_replay() -> None:
    source = (
        "a = runs.run('a', {'agent': 'w', 'task': 'x'})\nb = runs.run('b', {'agent': 'w', 'task': 'y'})\n"
        "first = await runs.first([a, b])\nreturn [first.output, now(), random()]"
    )
    shows = [Show(key="b", result={"output": "B"}, now=6.0, seed=8)]
    once, again = [await evaluated(source, "python", None, *shows) for _ in range(2)]
    assert once == again
    assert once[-1].value[:2] == ["B", 6.0]


@pytest.mark.parametrize(
    "source", ["return Date.now()", "return Math.random()", "return new Date()", "return require('fs')"]
)
async def test_r061_javascript_has_no_clock_no_chance_and_no_modules(source: str) -> None:
    (said,) = await evaluated(source, "javascript")
    assert isinstance(said, Threw)


async def test_an_evaluator_that_is_killed_is_told_as_gone() -> None:
    evaluator = await ProcessEvaluators().start("python", "w")
    await evaluator.say(Begin(source="return 1", path="w.py"))
    assert isinstance(await evaluator.hear(), Returned)
    await evaluator.close()
    with pytest.raises(EvaluatorGone):
        await evaluator.hear()


async def test_no_such_language_is_an_error() -> None:
    with pytest.raises((Error, KeyError)):
        await ProcessEvaluators().start("cobol", "w")  # type: ignore[arg-type]


async def test_a_rolling_workflow_of_two_stages(place: Make) -> None:
    here = place({"w1": [{"say": ""}], "*": [{"say": "fine"}]}, k={"lossBound": 1})
    (here.work / "flow.py").write_text(ROLLING)
    (here.work / "note.txt").write_text("a note")
    await here.run("job", workflow="flow.py", args={"parts": 3}, inputs={"note": "note.txt"})
    (here.work / "flow.py").write_text("changed afterwards")
    found = await here.sealed("job")
    assert found["status"] == "done", found
    assert found["result"] == {"good": ["fine", "fine"], "note": "a note"}
    assert (await here.workflow(found["wid"])).emitted == [{"good": 2}]


async def test_a_javascript_workflow_runs_unchanged(place: Make) -> None:
    here = place({"a": [{"say": "first"}], "*": [{"say": "more"}]})
    (here.work / "flow.js").write_text(JAVASCRIPT)
    await here.run("job", workflow="flow.js", args={"n": 7})
    found = await here.sealed("job")
    assert found["result"] == {"outputs": ["first", "more", "more"], "ok": True, "at": True, "n": 7}
    assert here.requests[-1]["messages"] is not None


async def test_r066_killed_between_results_a_script_goes_the_same_way_and_nothing_runs_twice(place: Make) -> None:
    source = (
        "a = await runs.run('a', {'agent': 'worker', 'task': 'one'})\nx = random()\n"
        "b = await runs.run('b', {'agent': 'worker', 'task': a.output + str(x)})\nreturn [a.output, b.output, x]"
    )
    here = place({"a": [{"say": "A"}], "b": [{"say": "B", "hold": 1.0}]})
    await here.run("job", source=source)
    await here.asked(2)
    before = here.requests[1]["messages"]
    for _ in range(2):
        here.kill_evaluators()
        here.kill_orchestrator()
        await here.gone()
        await here.client.ask("resume", {})
    found = await here.sealed("job")
    assert found["status"] == "done", found
    assert found["result"][:2] == ["A", "B"]
    assert sum(request["key"] == "a" for request in here.requests) == 1
    assert all(request["messages"] == before for request in here.requests if request["key"] == "b")


async def test_r067_a_script_that_never_stops_parks_its_workflow(place: Make) -> None:
    here = place({})
    await here.run("job", source="while True: pass")
    found = await here.until("job", lambda found: found.get("status") == "parked")
    assert "processor time" in found["reason"]
    await asyncio.sleep(0)


async def test_a_script_that_throws_fails_its_workflow(place: Make) -> None:
    here = place({})
    await here.run("job", source="raise ValueError('no way')")
    found = await here.sealed("job")
    assert (found["status"], "no way" in found["error"]) == ("failed", True)
