"""What watching may cost. The same measurements as `bench/views.py`, with room for a machine that is busy."""

import pytest

from bench import views

pytestmark = pytest.mark.slow
TRIES = 5


@pytest.mark.parametrize(("pace", "frames_limit", "events_limit"), [(80, 3.0, 4.0), (200, 2.0, 3.0)])
async def test_a_watched_answer_takes_few_times_its_own_bytes(
    pace: float, frames_limit: float, events_limit: float
) -> None:
    text, frames, events = await views.bytes_on_the_wire(pace)
    assert text < frames < frames_limit * text
    assert text < events < events_limit * text


async def test_a_hundred_watchers_cost_at_most_twice_as_much_as_ten() -> None:
    for _ in range(TRIES):
        ten, frames = await views.watched(10, 0.1)
        hundred, _ = await views.watched(100, 0.1)
        assert frames > 0
        if hundred <= 2 * ten:
            return
    raise AssertionError(f"100 watchers took {hundred:.4f} s, 10 took {ten:.4f} s")


async def test_every_watcher_gets_every_commit_of_an_answer_as_a_delta() -> None:
    _, frames = await views.watched(3, 0.0)
    assert frames > views.CHUNKS


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_tool_that_computes_does_not_hold_up_another_conversation(blocking: bool) -> None:
    for _ in range(TRIES):
        alone, busy = await views.longest_delay(blocking)
        if busy < 0.05:
            return
    raise AssertionError(f"frames came {busy:.3f} s late, {alone:.3f} s when nothing else went on")
