"""An abort at any moment of a run: it ends once, nothing starts after it, and no steer is lost (traps 4, 6 and 8)."""

from collections.abc import Sequence

import pytest

from perdure import Settled
from perdure.testing.crash import Process, Scenario, explore, live_through
from perdure.testing.laws import LawBroken
from perdure.testing.scenarios import SLOW, tools
from perdure.testing.turns import TurnLike, call, say

THREE: Sequence[TurnLike] = [[call("look", {"order": 1}), call("slow"), call("pay", {"cents": 5})], say("Done.")]
LAST_COMMIT = 14
"""No run of these scripts makes more commits."""


def abort_at(commit: int, *, keep_queued: bool = False, turns: Sequence[TurnLike] = THREE) -> Scenario:
    """A run with a steer and a follow-up behind it, aborted once so many commits are stored."""

    async def start(process: Process) -> None:
        first = await process.submit("go", request_id="first")
        process.gate.set()
        steer = await process.submit("faster", request_id="steer", when_busy="steer")
        then = await process.submit("and then?", request_id="then")
        await process.until(lambda: process.harness.session.seq >= commit or not process.harness.wake().active)
        await process.abort(keep_queued=keep_queued)
        asked = len(process.model.requests)
        await process.run_out()
        if len(process.model.requests) != asked:
            raise LawBroken(5, "a model was asked after the abort had been acknowledged")
        if keep_queued:
            await process.settled(await process.submit("now", request_id="now"))
        for submission in (first, steer, then):
            check_end(await process.settled(submission))

    return Scenario(f"abort at {commit}", start, turns=turns, registry=tools, finish=start)


def check_end(settled: Settled) -> None:
    assert settled.status == "done" or settled.reason in ("aborted", "withdrawn"), settled


@pytest.mark.slow
@pytest.mark.parametrize("keep_queued", [False, True])
@pytest.mark.parametrize("storage", ["memory", "power"])
def test_an_abort_after_any_commit_ends_the_run_once_and_loses_no_steer(storage: str, keep_queued: bool) -> None:
    for commit in range(2, LAST_COMMIT):
        live_through(abort_at(commit, keep_queued=keep_queued), storage, [])


@pytest.mark.long
@pytest.mark.parametrize("keep_queued", [False, True])
@pytest.mark.parametrize("commit", range(2, LAST_COMMIT))
def test_an_abort_after_any_commit_survives_a_crash_at_any_other(commit: int, keep_queued: bool) -> None:
    explore(abort_at(commit, keep_queued=keep_queued), ["memory", "power"], snapshots=True)
    explore(abort_at(commit, keep_queued=keep_queued, turns=SLOW), ["memory"], snapshots=True)
