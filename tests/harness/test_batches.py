"""Answers by a provider's batch interface: the process may end in between, and the batch is made once."""

from pathlib import Path
from typing import Any

import pytest

from perdure import Harness, ProviderModels, RetrySettings, Settings
from perdure.testing.clock import FakeClock
from perdure.testing.fake_anthropic import FakeAnthropic
from perdure.testing.fake_openai import FakeOpenAI
from tests.agent.kit import until
from tests.harness.wires import IMPORTED, MODELS, desk

pytestmark = pytest.mark.slow  # each opens servers and clients

assert IMPORTED


def opening(store: Path | str, server: Any, clock: FakeClock) -> tuple[ProviderModels, Any]:
    provider = "anthropic" if isinstance(server, FakeAnthropic) else "openai"
    models = ProviderModels(base_url={provider: server.base_url}, keys={provider: "k"}, environ={})
    settings = Settings(stream_options={"batch": True}, retry=RetrySettings(attempts=2, first_delay=5, spread=0))
    return models, Harness.open(store, registry=desk(), models=models, settings=settings, clock=clock)


async def parked(harness: Harness, clock: FakeClock, seconds: float) -> None:
    """Wait until nothing runs and the next question is due in so many seconds; then let them pass."""
    due = clock.now() + seconds
    await until(lambda: harness.wake() == (False, due))
    await clock.advance(seconds)


async def test_a_batched_round_goes_through_three_processes_and_is_made_once(tmp_path: Path) -> None:
    clock = FakeClock()
    turns: list[dict[str, Any]] = [
        {"thinking": "hm", "calls": [{"name": "weather", "arguments": {"city": "Graz"}, "id": "w"}]},
        {"text": "Sunny.", "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 0}},
    ]
    with FakeAnthropic(turns) as server:
        models, harness_opening = opening(tmp_path / "a.db", server, clock)
        async with models, harness_opening as harness:
            root = await harness.root(model=MODELS["anthropic"])
            await root.submit("How is it?", request_id="one")
            await parked(harness, clock, 60)
            await until(lambda: harness.wake() == (False, clock.now() + 300))  # not done yet: five minutes more
        models, harness_opening = opening(tmp_path / "a.db", server, clock)
        async with models, harness_opening as harness:
            await harness.resume()
            await parked(harness, clock, 300)
            await parked(harness, clock, 60)  # the second batch, with what the tool said
            await until(lambda: harness.wake() == (False, clock.now() + 300))
        models, harness_opening = opening(tmp_path / "a.db", server, clock)
        async with models, harness_opening as harness:
            root = await harness.root()
            submission = await root.submit("How is it?", request_id="one")
            await parked(harness, clock, 300)
            assert (await submission.wait()).text == "Sunny."
            usage = await harness.usage()
    assert len(server.batches) == 2
    assert len(server.requests) == 2
    assert usage["unpriced"] == 0
    assert usage["cost"] == pytest.approx(1.5, abs=0.01)  # half of what a million tokens cost at once


async def test_an_abort_cancels_the_batch_and_one_that_expired_is_made_anew() -> None:
    clock = FakeClock()
    with FakeAnthropic([{"text": "never"}, {"finish": "expired"}, {"text": "at last"}], batch_polls=0) as server:
        models, harness_opening = opening("memory:", server, clock)
        async with models, harness_opening as harness:
            root = await harness.root(model=MODELS["anthropic"])
            stopped = await root.submit("go")
            await until(lambda: harness.wake().at is not None)
            server.batch_polls = 9
            await root.abort()
            assert (await stopped.settled()).reason == "aborted"
            assert server.cancelled == ["msgbatch_0"]
            server.batch_polls = 0
            submission = await root.submit("again")
            await parked(harness, clock, 60)
            await parked(harness, clock, 5)
            await parked(harness, clock, 60)
            assert (await submission.wait()).text == "at last"
    assert len(server.batches) == 3


async def test_a_server_without_batches_says_so() -> None:
    clock = FakeClock()
    with FakeOpenAI([{"text": "no"}]) as server:
        models, harness_opening = opening("memory:", server, clock)
        async with models, harness_opening as harness:
            root = await harness.root(model=MODELS["openai"])
            settled = await (await root.submit("go")).settled()
    assert settled.reason == "failed"
    assert server.requests == []
