"""A steer is in exactly one place: the queue, the transcript, or settled as withdrawn."""

import asyncio
from typing import Any

import pytest

from perdure import Extension
from perdure.testing.clock import settle
from perdure.testing.crash import Scenario, explore
from perdure.testing.scenarios import SLOW, steer, tools
from perdure.testing.scripted_model import ScriptedModel, say
from perdure.testing.turns import call
from tests.agent.kit import Gate, agent, said

ROUND = [call("work", {"name": name}) for name in "abc"]


def script(request: Any) -> Any:
    return ROUND if len(request.messages) == 1 else say("x")


def three(gate: Gate) -> Extension:
    extension = Extension("three")

    @extension.tool(sequential=True)
    async def work(ctx: Any, name: str) -> str:
        """Work."""
        if name == "b":
            await gate.stop()
        return name

    return extension


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
async def test_an_abort_at_any_write_after_a_steer_leaves_it_in_one_place(keep: bool) -> None:
    for number in range(1, 12):
        gate = Gate()
        model = ScriptedModel(script)
        async with agent(model, three(gate)) as (harness, root):
            await root.submit("go")
            await gate.reached.wait()
            aborts: list[asyncio.Task[None]] = []
            seen = 0

            def at(publication: Any, number: int = number, aborts: Any = aborts, root: Any = root) -> None:
                nonlocal seen
                seen += 1
                if seen == number:
                    aborts.append(asyncio.ensure_future(root.abort(keep_queued=keep)))

            harness.session.listeners.append(at)
            steer = await root.submit("steer", when_busy="steer")
            gate.go.set()
            await settle(300)
            await asyncio.gather(*aborts)
            places = [await steer.status() == "queued", "steer" in await said(root)]
            places.append((await steer.status(),) == ("unanswered",) and (await steer.settled()).reason == "withdrawn")
            assert sum(places) == 1, (number, places)
            later = await root.submit("later")
            await later.wait()
            heard = await said(root)
            assert heard.count("steer") == (0 if places[2] else 1)
            assert heard[-1] == "later"


@pytest.mark.slow
def test_a_crash_at_any_write_keeps_an_acknowledged_steer() -> None:
    explore(Scenario("steer", steer, turns=[*SLOW, say("Then this.")], registry=tools, finish=steer), ["memory"])
