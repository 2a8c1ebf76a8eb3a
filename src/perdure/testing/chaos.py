"""Nine ways in which subagents are hit, each on real processes, and what must hold after each."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from perdure.subagents import starter
from perdure.testing.chaos_world import Broken, World

ALL_WELL: Final[dict[str, Any]] = {
    "writer": [{"say": "The page."}], "reviewer": [{"say": "Approved."}], "integrator": [{"say": "It is in."}],
}  # fmt: skip
COUNT: Final = {"call": "bash", "args": {"command": "echo x >> count; echo counted"}}
ASK: Final = {"call": "ask", "args": {"question": "Which color?"}}


class Scenario(NamedTuple):
    """A fault, and what must hold."""

    name: str
    make: Callable[[], World]
    play: Callable[[World], Awaitable[dict[str, Any]]]


class Verdict(msgspec.Struct, kw_only=True):
    """What became of one scenario."""

    number: int
    name: str
    passed: bool
    seconds: float
    problem: str = ""
    evidence: str = ""


def need(holds: object, what: str) -> None:
    """Raise `Broken` where it does not hold."""
    if not holds:
        raise Broken(what)


async def to_the_end(world: World) -> dict[str, Any]:
    """Start the parent, and let everything come to its end."""
    world.start_parent()
    return await world.sealed()


async def dropped_stream(world: World) -> dict[str, Any]:
    found = await to_the_end(world)
    need(found["result"]["ended"] == "integrator", "the workflow did not come to its end")
    need((world.work / "count").read_text() == "x\n", "a finished tool was run again")
    await world.check()
    return found


async def silent_tool(world: World) -> dict[str, Any]:
    found = await to_the_end(world)
    need(found["result"] == {"ended": "writer", "status": "timeout"}, f"the result is {found['result']}")
    need(len(found["calls"]) == 1, "a dependent was dispatched")
    await world.check()
    return found


async def empty_reply(world: World) -> dict[str, Any]:
    found = await to_the_end(world)
    need(found["calls"][0].get("losses") == 1, "one loss is counted")
    need(found["result"]["ended"] == "integrator", "the workflow did not come to its end")
    await world.check()
    return found


async def killed_parent(world: World) -> dict[str, Any]:
    world.start_parent()
    await world.until("the writer works", lambda found: found.get("calls"))
    before = await world.told()
    world.kill_parent()
    await world.until("the work goes on", lambda found: found["state"] == "sealed")
    world.start_parent()
    found = await world.sealed()
    need((await world.told())[: len(before)] == before, "the parent's history was changed")
    await asyncio.sleep(0.3)
    await world.check()
    return found


async def steered_question(world: World) -> dict[str, Any]:
    world.start_parent()
    await world.until("the writer asks", lambda found: found["state"] == "asking")
    wid = (await world.described())["wid"]
    steered = await world.send("steer", f"{wid}/writer", "Use the logo's color if it has one.", "steer-1")
    need(steered.reply.get("delivery") == "interrupts-question", f"the steer was {steered.reply}")
    await world.until("it asks again", lambda found: found["calls"][0].get("question", {}).get("rev") == 2)
    answered = await world.send("answer", f"{wid}/writer", "blue", "answer-1")
    need(answered.state == "applied", f"the answer was {answered.reply}")
    found = await world.sealed()
    need(found["result"]["ended"] == "integrator", "the workflow did not come to its end")
    await world.check(questions=2)
    return found


async def replaced_steer(world: World) -> dict[str, Any]:
    world.start_parent()
    await world.until("the writer works", lambda found: found.get("calls") and world.requests)
    wid = (await world.described())["wid"]
    second = await world.send("steer", f"{wid}/writer", "second", "s2", replaces=["s1"])
    first = await world.send("steer", f"{wid}/writer", "first", "s1")
    need((first.state, first.reply.get("reason")) == ("rejected", "withdrawn"), f"the first was {first.reply}")
    need(second.state == "applied", f"the second was {second.reply}")
    found = await world.sealed()
    said = await world.users("writer")
    need("second" in said and "first" not in said, f"the model was told {said}")
    await world.check()
    return found


async def rejecting_review(world: World) -> dict[str, Any]:
    found = await to_the_end(world)
    need(found["result"]["ended"] == "reviewer", f"the result is {found['result']}")
    need(len(found["calls"]) == 2, "the integrator was dispatched")
    await world.check()
    return found


async def five_losses(world: World) -> dict[str, Any]:
    found = await to_the_end(world)
    need(found["result"] == {"ended": "writer", "status": "failed"}, f"the result is {found['result']}")
    need(found["calls"][0]["losses"] == 5, f"{found['calls'][0]['losses']} losses")
    need(len(found["calls"]) == 1, "a dependent was dispatched")
    await world.check()
    return found


async def killed_orchestrator(world: World) -> dict[str, Any]:
    world.start_parent()
    await world.until("the reviewer works", lambda found: len(found.get("calls", [])) == 2 and len(world.requests) == 2)
    began = time.monotonic()
    world.kill_orchestrator()
    while starter.running(world.root) is None:
        need(time.monotonic() - began < 40, "nobody started the next orchestrator within 40 s")
        await asyncio.sleep(0.05)
    found = await world.sealed()
    need(found["result"]["ended"] == "integrator", "the workflow did not come to its end")
    need(sum(one["key"] == "writer" for one in world.requests) == 1, "a sealed call ran again")
    need(sum(one["key"] == "reviewer" for one in world.requests) == 1, "a living host was not adopted")
    await world.check()
    return found


SCENARIOS: Final = (
    Scenario(
        "the stream is dropped after a tool round",
        lambda: World({**ALL_WELL, "writer": [COUNT, {"say": "The page.", "once": {"fail": "dropped"}}]}),
        dropped_stream,
    ),
    Scenario(
        "a silent tool burns the processor past its limit",
        lambda: World(
            {**ALL_WELL, "writer": [{"call": "bash", "args": {"command": "while :; do :; done"}}]},
            writer={"timeoutMs": 1500},
        ),
        silent_tool,
    ),
    Scenario(
        "the model answers nothing",
        lambda: World(
            {**ALL_WELL, "writer": [{"say": "The page.", "first": [{"say": ""}, {"say": ""}]}, {"say": "The page."}]}
        ),
        empty_reply,
    ),
    Scenario(
        "the parent is killed and opened again",
        lambda: World({**ALL_WELL, "writer": [{"say": "The page.", "hold": 1.0}]}),
        killed_parent,
    ),
    Scenario(
        "a steer comes while a question is open",
        lambda: World({**ALL_WELL, "writer": [ASK, ASK, {"say": "The blue page."}]}, hibernateMs=0),
        steered_question,
    ),
    Scenario(
        "two steers arrive in the wrong order, the second replaces the first",
        lambda: World(
            {**ALL_WELL, "writer": [{"call": "bash", "args": {"command": "sleep 1.5"}}, {"say": "The page."}]}
        ),
        replaced_steer,
    ),
    Scenario(
        "the review rejects", lambda: World({**ALL_WELL, "reviewer": [{"say": "rejected: too long"}]}), rejecting_review
    ),
    Scenario("the writer answers nothing, always", lambda: World({**ALL_WELL, "writer": [{"say": ""}]}), five_losses),
    Scenario(
        "the orchestrator is killed while the reviewer works",
        lambda: World({**ALL_WELL, "reviewer": [{"say": "Approved.", "hold": 2.0}]}),
        killed_orchestrator,
    ),
)


async def run_scenario(number: int, *, keep: bool = False) -> Verdict:
    """Play one scenario (from 1), in a temporary folder of its own. A failed one leaves its folder as evidence."""
    scenario = SCENARIOS[number - 1]
    began, world, before = time.monotonic(), scenario.make(), dict(os.environ)
    problem = ""
    try:
        os.environ.clear()
        os.environ.update(world.environment)
        await scenario.play(world)
    except Broken as error:
        problem = str(error)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    finally:
        os.environ.clear()
        os.environ.update(before)
        world.end(keep or bool(problem))
    evidence = str(world.folder) if keep or problem else ""
    return Verdict(
        number=number, name=scenario.name, passed=not problem, seconds=time.monotonic() - began, problem=problem,
        evidence=evidence,
    )  # fmt: skip
