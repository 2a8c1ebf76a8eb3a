"""Workflows that a script runs: what is recorded, shown, replayed and parked; with real hosts."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure.subagents.engine.scripts import Limited, Show
from perdure.subagents.orchestrator import Orchestrator
from tests.subagents.inline_evaluator import InlineEvaluators, Main, Pending, Runs
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]


@asynccontextmanager
async def orchestrator(here: Place, evaluators: InlineEvaluators) -> AsyncIterator[Orchestrator]:
    async with Orchestrator(here.root, evaluators=evaluators) as running:
        yield running


async def script(here: Place, **more: Any) -> str:
    outcome = await here.run("job", source="(told by the test)", **more)
    assert outcome.state == "applied", outcome
    return str(outcome.reply["wid"])


async def test_r060_a_script_runs_calls_and_its_value_is_the_result(place: Make) -> None:
    async def main(runs: Runs, args: Any) -> Any:
        one = await runs.start("one", task=args["task"])
        two = await runs.all("two", "three")
        runs.emit({"seen": one["output"]})
        runs.log("almost\nthere")
        return [one["output"], *(result["output"] for result in two)]

    here = place({"one": [{"say": "1"}], "two": [{"say": "2", "hold": 0.3}], "three": [{"say": "3"}]})
    async with orchestrator(here, InlineEvaluators(main)):
        wid = await script(here, args={"task": "Begin"})
        found = await here.sealed("job")
    assert (found["status"], found["result"]) == ("done", ["1", "2", "3"])
    assert [call["key"] for call in found["calls"]] == ["one", "two", "three"]
    assert (await here.workflow(wid)).emitted == [{"seen": "1"}]
    (line,) = here.root.console(wid).read_text().splitlines()
    assert line.endswith(" 1 info almost\\nthere"), "R-069"


async def test_r065_a_second_incarnation_is_shown_the_same_in_the_same_order(place: Make) -> None:
    seen: list[Any] = []

    async def main(runs: Runs, args: Any) -> Any:
        first = await runs.race("slow", "quick")
        seen.append((first["key"], runs.now(), runs.random()))
        last = await runs.start("last", task=f"After {first['key']}")
        return [first["key"], last["output"]]

    here = place({"slow": [{"say": "s", "hold": 0.6}], "quick": [{"say": "q"}], "last": [{"say": "end", "hold": 1.0}]})
    evaluators = InlineEvaluators(main)
    async with orchestrator(here, evaluators):
        await script(here)
        await here.until("job", lambda found: any(call["key"] == "last" for call in found["calls"]))
    async with orchestrator(here, evaluators):
        found = await here.sealed("job")
    assert len(evaluators.made) == 2
    assert found["result"] == ["quick", "end"]
    assert len(seen) == 2
    assert seen[0] == seen[1], "now and random repeat"
    shown = [line.key for line in evaluators.told if isinstance(line, Show)]
    assert shown[:1] == ["quick"]
    assert shown.count("quick") == 2
    keys = [request["key"] for request in here.requests]
    assert sorted(keys) == ["last", "quick", "slow"], "nothing ran twice"


async def test_r207_the_death_of_an_evaluator_replays_and_repeats_nothing(place: Make) -> None:
    async def main(runs: Runs, args: Any) -> Any:
        one = await runs.start("one")
        two = await runs.start("two")
        return [one["output"], two["output"]]

    here = place({"one": [{"say": "1"}], "two": [{"say": "2", "hold": 0.5}]})
    evaluators = InlineEvaluators(main)
    async with orchestrator(here, evaluators):
        await script(here)
        await here.asked(2)
        evaluators.made[0].dead = True
        found = await here.sealed("job")
    assert (found["status"], found["result"], len(evaluators.made)) == ("done", ["1", "2"], 2)
    assert len(here.requests) == 2


async def _other_key(runs: Runs, args: Any) -> Any:
    await runs.start("another")


async def _other_task(runs: Runs, args: Any) -> Any:
    await runs.start("one", task="Something else")


async def _no_proposal(runs: Runs, args: Any) -> Any:
    return "early"


async def _other_emit(runs: Runs, args: Any) -> Any:
    await runs.start("one")
    runs.now()
    runs.emit("other")
    await runs.start("two")


async def _random_for_now(runs: Runs, args: Any) -> Any:
    await runs.start("one")
    runs.random()


async def _twice(runs: Runs, args: Any) -> Any:
    await runs.start("one")
    runs.now()
    runs.emit("value")
    runs.start("one")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (_other_key, "'another'"),
        (_other_task, "'one'"),
        (_no_proposal, "it ends"),
        (_other_emit, "emitted"),
        (_random_for_now, "random"),
        (_twice, "'one' is proposed a second time"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_r064_t15_a_script_that_goes_another_way_is_parked_before_anything_starts(
    place: Make, changed: Main, named: str
) -> None:
    async def main(runs: Runs, args: Any) -> Any:
        await runs.start("one")
        runs.now()
        runs.emit("value")
        return (await runs.start("two"))["output"]

    here = place({"one": [{"say": "1"}], "two": [{"say": "2", "hold": 1.5}]})
    evaluators = InlineEvaluators(main)
    async with orchestrator(here, evaluators):
        wid = await script(here)
        await here.asked(2)
    evaluators.main = changed
    async with orchestrator(here, evaluators):
        await here.until("job", lambda found: found["status"] == "parked")
        workflow = await here.workflow(wid)
        assert workflow.reason is not None
        assert named in workflow.reason
        assert workflow.calls == ["one", "two"]
        await here.until("job", lambda found: all(call["phase"] == "sealed" for call in found["calls"]))
        evaluators.main = main
        outcome = await here.client.ask("resume", {"to": wid})
        assert outcome.state == "applied", outcome
        found = await here.sealed("job")
    assert (found["status"], found["result"]) == ("done", "2")
    assert [request["key"] for request in here.requests] == ["one", "two"]


async def test_r067_a_limit_parks_and_a_thrown_error_fails(place: Make) -> None:
    async def main(runs: Runs, args: Any) -> Any:
        if args == "throw":
            raise ValueError("no good")
        runs._said.append(Limited(what="2 s of CPU"))
        await runs.start("never told")

    here = place({})
    async with orchestrator(here, InlineEvaluators(main)):
        wid = await script(here, args="spin")
        found = await here.until("job", lambda found: found["status"] == "parked")
        assert found["reason"] == "the script took too much: 2 s of CPU"
        assert (await here.workflow(wid)).calls == []
        other = await here.run("other", source="x", args="throw")
        failed = await here.sealed("other")
        assert (failed["status"], failed["error"]) == ("failed", "ValueError: no good")
        assert other.state == "applied"
        assert (await here.client.ask("stop", {"to": wid})).state == "applied", "R-162"
        assert (await here.sealed("job"))["status"] == "stopped"


async def test_r053_r083_a_bad_spec_or_agent_fails_that_call_and_the_script_goes_on(place: Make) -> None:
    async def main(runs: Runs, args: Any) -> Any:
        bad = await runs.start("bad", isolaton="none")
        nobody = await runs.start("nobody", agent="nobody")
        return [bad, nobody, (await runs.start("good"))["output"]]

    here = place({"good": [{"say": "fine"}]})
    async with orchestrator(here, InlineEvaluators(main)):
        await script(here)
        found = await here.sealed("job")
    bad, nobody, good = found["result"]
    assert (bad["status"], bad["gen"], bad["ok"]) == ("failed", 0, False)
    assert "isolaton: no such field" in bad["error"]
    assert nobody["error"].startswith("unknown agent 'nobody'; there are: delegate")
    assert good == "fine"
    assert found["calls"][0]["error"] == bad["error"], "R-115"
    assert len(here.requests) == 1


async def test_r068_calls_beyond_the_budget_fail_alike_when_replayed_under_another_limit(place: Make) -> None:
    async def main(runs: Runs, args: Any) -> Any:
        one, two = await runs.all("one", "two")
        three = await runs.start("three")
        return [one["status"], two["error"], three["error"]]

    here = place({"one": [{"say": "1", "hold": 0.7}]})
    evaluators = InlineEvaluators(main)
    async with orchestrator(here, evaluators):
        wid = await script(here, maxCalls=1)
        await here.asked(1)
    async with orchestrator(here, evaluators) as running:
        found = await here.sealed("job")
        assert running.root.store.exists()
    assert found["result"] == ["ok", "spawn budget exceeded", "spawn budget exceeded"]
    assert (await here.workflow(wid)).calls == ["one", "two", "three"]
    assert len(here.requests) == 1


async def test_b131_a_script_that_ends_early_names_what_it_did_not_wait_for(place: Make) -> None:
    async def main(runs: Runs, args: Any) -> Any:
        runs.all("late", "later")
        return (await runs.start("one"))["output"]

    here = place({"late": [{"say": "still", "hold": 0.5}], "*": [{"say": "1"}]})
    async with orchestrator(here, InlineEvaluators(main)):
        wid = await script(here)
        found = await here.sealed("job")
    assert found["result"] == "1"
    assert "late" in found["reason"]
    assert [call["status"] for call in found["calls"]] == ["ok", "ok", "ok"], "they ran to their ends"
    assert "ended without waiting for" in here.root.console(wid).read_text()


async def test_a_script_that_waits_for_nothing_fails(place: Make) -> None:
    async def main(runs: Runs, args: Any) -> Any:
        await runs.race("one")
        await runs.all()
        await Pending(runs, ["never proposed"])

    here = place({"one": [{"say": "1"}]})
    async with orchestrator(here, InlineEvaluators(main)):
        await script(here)
        found = await here.sealed("job")
    assert (found["status"], found["error"]) == ("failed", "the script waits for something that never comes")
