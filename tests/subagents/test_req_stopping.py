"""Stop, drain and resume: what is refused, what needs no launch, and whose work a session releases."""

from collections.abc import Callable

import pytest

from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]
HOLD = {"say": "done", "once": {"say": "never", "hold": 60}}


async def test_r162_r169_what_has_ended_is_not_stopped_held_or_resumed(place: Make) -> None:
    here = place({"a": [{"say": "done"}]})
    wid = await here.single("job")
    await here.sealed("job")
    for kind in ("stop", "drain", "resume"):
        outcome = await here.client.ask(kind, {"to": wid})
        assert (outcome.state, outcome.reply["reason"]) == ("rejected", "terminal:done"), kind
    call = await here.client.ask("stop", {"to": f"{wid}/a"})
    assert call.reply["reason"] == "already-sealed:ok"


async def test_r164_r160_a_call_that_waits_is_stopped_without_a_launch(place: Make) -> None:
    here = place({"*": [{"say": "never", "hold": 60}]}, providers={"test": {"slots": 1}})
    first = await here.single("one")
    await here.asked(1)
    second = await here.single("two")
    await here.until("two", lambda found: bool(found["calls"] and found["calls"][0].get("waiting")))
    assert (await here.client.ask("stop", {"to": f"{second}/a"})).state == "applied"
    assert (await here.sealed("two"))["calls"][0]["status"] == "stopped"
    assert len(here.requests) == 1
    assert await here.slots() == {"test": 1}
    assert (await here.client.ask("resume", {"to": first})).reply["reason"] == "it runs already"


async def test_r168_r169_a_session_releases_its_own_and_hears_of_what_others_hold(place: Make) -> None:
    here = place({"*": [HOLD]})
    wid = await here.single("job")
    await here.asked(1)
    await here.client.ask("stop-all", {})
    await here.until("job", lambda found: bool(found["calls"][0].get("paused")))
    refused = await here.client.ask("resume", {"session": "another"})
    assert (refused.reply["reason"], refused.reply["held_by_others"]) == ("nothing to resume", [wid])
    assert (await here.client.ask("resume", {"session": "parent"})).reply["resumed"] == [wid]
    assert (await here.sealed("job"))["calls"][0]["status"] == "ok"
