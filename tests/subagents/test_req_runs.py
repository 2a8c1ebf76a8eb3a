"""What is not available is refused alike wherever it is asked for; chains that end early; revisions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidValue
from perdure.subagents.discovery import discover
from perdure.subagents.spec import check_call, parse_run
from tests.subagents.place import Place

Make = Callable[..., Place]
NOT_YET: list[tuple[dict[str, Any], str]] = [
    ({"writer": True}, "writer: true is not available yet: leave it out"),
    ({"isolation": "worktree"}, 'isolation: "worktree" is not available yet: make the worktree'),
    ({"context": "fork"}, 'context: "fork" is not available yet: put what it has to know into the task'),
    ({"model": "fast"}, "pools of models are not available yet; name one model, as provider/id"),
]


@pytest.mark.parametrize(("more", "told"), NOT_YET)
def test_r080_r083_what_is_not_available_is_refused_in_every_form_with_what_to_do(
    more: dict[str, Any], told: str
) -> None:
    step = {"agent": "worker", "task": "Do it"}
    for body in ({**step, **more}, {"tasks": [{**step, **more}]}, {"chain": [step], **more}):
        with pytest.raises(InvalidValue) as error:
            parse_run(body, "/")
        assert told in str(error.value)


def test_r080_the_same_fields_may_say_that_they_want_nothing_of_it() -> None:
    plain = {"writer": False, "isolation": "none", "context": "fresh"}
    assert check_call({"agent": "worker", "task": "Do it", **plain}) == []


def test_r036_no_builtin_agent_needs_what_is_not_available(tmp_path: Path) -> None:
    for agent in discover(str(tmp_path)).agents.values():
        assert (agent.default_context, agent.model) == ("fresh", None)


@pytest.mark.slow
async def test_r083_r115_in_a_script_it_fails_that_call_with_the_same_words(place: Make) -> None:
    here = place({"good": [{"say": "fine"}]})
    specs = json.dumps([more for more, _ in NOT_YET])
    await here.run(
        "job",
        source="found = []\nfor n, more in enumerate(args):\n"
        "    found.append(await runs.run(f'bad{n}', {'agent': 'worker', 'task': 'x', **more}))\n"
        "good = await runs.run('good', {'agent': 'worker', 'task': 'x'})\n"
        "return [[one.error for one in found], [one.gen for one in found], good.output]",
        args=json.loads(specs),
    )
    found = await here.sealed("job")
    assert found["status"] == "done", found
    errors, generations, good = found["result"]
    assert all(told in error for (_, told), error in zip(NOT_YET, errors, strict=True))
    assert (generations, good) == ([0] * len(NOT_YET), "fine")
    assert [call["error"] for call in found["calls"][:-1]] == errors, "status shows what the script was told"


@pytest.mark.slow
async def test_r055_the_steps_that_were_skipped_are_emitted(place: Make) -> None:
    here = place({"a": [{"say": ""}]}, k={"lossBound": 1})
    steps = [{"agent": "worker", "task": "x", "key": key} for key in "abc"]
    outcome = await here.run("job", chain=steps)
    found = await here.sealed("job")
    assert (found["status"], found["skipped"]) == ("done", ["b", "c"])
    assert [(one["status"], one["gen"]) for one in found["result"][1:]] == [("skipped", 0)] * 2
    assert (await here.workflow(outcome.reply["wid"])).emitted == [{"skipped": ["b", "c"]}]


@pytest.mark.slow
async def test_r070_r071_r098_a_revision_keeps_what_is_finished_and_retires_what_runs(place: Make) -> None:
    source = (
        "a = await runs.run('a', {'agent': 'worker', 'task': 'one'})\n"
        "b = await runs.run('b', {'agent': 'worker', 'task': TASK})\nreturn [a.output, b.output, b.gen]"
    )
    here = place({"a": [{"say": "A"}], "b": [{"say": "B", "hold": 20.0}]})
    outcome = await here.run("job", source=source.replace("TASK", "'old'"))
    wid = outcome.reply["wid"]
    await here.asked(2)
    gone = await here.client.ask("revise", {"to": wid, "workflow": "nowhere.py", "cwd": str(here.work)})
    assert gone.state == "rejected"
    assert "pin-failed" in gone.reply["reason"]
    assert (await here.workflow(wid)).revision == 1, "the old one runs on"
    here.script({"a": [{"say": "A"}], "b": [{"say": "B"}]})
    body = {"to": wid, "source": source.replace("TASK", "'new'"), "cwd": str(here.work)}
    revised = await here.client.ask("revise", body, wait=30.0)
    assert revised.reply == {"wid": wid, "revision": 2}
    here.kill_orchestrator()  # while what ran is retired
    await here.gone()
    stale = await here.client.ask("steer", {"to": f"{wid}@1/b@1", "message": "?"}, wait=30.0)
    assert stale.reply["reason"] == "stale-revision"
    stopped = await here.client.ask("stop", {"to": f"{wid}@1"}, wait=30.0)
    assert stopped.reply["reason"] == "stale-revision"
    found = await here.sealed("job")
    assert found["result"] == ["A", "B", 2]
    assert sum(request["key"] == "a" for request in here.requests) == 1


@pytest.mark.slow
async def test_t15_status_changes_nothing_and_a_used_id_gives_the_first_outcome_or_a_conflict(place: Make) -> None:
    source = (
        "a = await runs.run('a', {'agent': 'worker', 'task': 'one'})\n"
        "b = await runs.run('b', {'agent': 'worker', 'task': 'two'})\nreturn [a.output, b.output]"
    )
    here = place({"a": [{"say": "A"}], "b": [{"say": "B", "hold": 3.0}]})
    first = await here.run("job", source=source)
    wid = first.reply["wid"]
    await here.asked(2)
    here.kill_orchestrator()
    await here.gone()
    before = await here.workflow(wid)
    assert (await here.described("job"))["state"] == "running"
    assert await here.workflow(wid) == before
    for edited in ("# a comment\n" + source, source.replace("two", "three"), "await runs.run('k0', {})\n" + source):
        assert (await here.run("job", source=edited)).state == "conflict"
    again = await here.run("job", source=source)
    assert (again.state, again.created, again.reply) == ("applied", False, first.reply)
    await here.client.ask("resume", {}, wait=30.0)
    found = await here.sealed("job")
    assert (found["status"], found["result"]) == ("done", ["A", "B"])
    assert sum(request["key"] == "a" for request in here.requests) == 1


@pytest.mark.slow
async def test_r084_what_has_ended_stands_and_only_what_is_new_is_checked(place: Make) -> None:
    call = "{'agent': 'worker', 'task': 'one'}"
    here = place({"a": [{"say": "A"}]})
    outcome = await here.run("job", source=f"return (await runs.run('a', {call})).output")
    await here.sealed("job")
    changed = (
        f"a = await runs.run('a', {call})\n"
        "b = await runs.run('b', {'agent': 'worker', 'task': 'x', 'writer': True})\n"
        "return [a.output, b.error]"
    )
    body = {"to": outcome.reply["wid"], "source": changed, "cwd": str(here.work)}
    assert (await here.client.ask("revise", body, wait=30.0)).state == "applied"
    found = await here.sealed("job")
    assert found["result"][0] == "A"
    assert found["result"][1].startswith("writer: true is not available yet")
    assert len(here.requests) == 1
