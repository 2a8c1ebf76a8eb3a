"""A conversation of tens of thousands of messages: what is in memory is the active range, whatever came before."""

import gc
import time
from pathlib import Path
from typing import Any

import pytest

from perdure import CompactionSettings, Harness, Settings
from perdure.testing.clock import settle
from tests.agent.compacting import LONG, Counting, summaries
from tests.agent.kit import MODEL

WINDOW = 8_000
SETTINGS = Settings(compaction=CompactionSettings(reserve_tokens=1_000, background_tokens=2_000, keep_tokens=1_500))


def resident() -> float:
    """Megabytes of this process in memory."""
    gc.collect()
    with open("/proc/self/statm") as counts:
        return int(counts.read().split()[1]) * 4096 / 1e6


class Talk:
    """Turns on a store in a file, and what they cost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = Counting(context_window=WINDOW)
        self.turns = 0
        self.most_summaries = 0
        self.summarized = 0
        self.waited = 0

    async def go_on(self, turns: int) -> float:
        """So many turns in one process; seconds of the processor that each took."""
        async with Harness.open(self.path, models=self.model, settings=SETTINGS) as harness:
            root = await harness.root(model=MODEL)
            begun = time.process_time()
            for _ in range(turns):
                await (await root.submit(f"{self.turns} {LONG}")).wait()
                self.turns += 1
                self._look()
            took = (time.process_time() - begun) / turns
            await settle()
            causes = [slot["cause"] for slot in (await root.live())["compactions"].values()]
            self.waited += causes.count("blocking")
        return took

    def _look(self) -> None:
        for request in self.model.requests:
            self.most_summaries = max(self.most_summaries, summaries(request))
        self.summarized += len(self.model.summarized())
        self.model.requests.clear()

    async def opening(self) -> tuple[float, int]:
        """Seconds of the processor from the opening to the context, and the messages in that."""
        begun = time.process_time()
        async with Harness.open(self.path, models=self.model, settings=SETTINGS) as harness:
            messages = await (await harness.root()).messages()
            return time.process_time() - begun, len(messages)


@pytest.mark.slow
async def test_only_the_active_range_is_held(tmp_path: Path) -> None:
    talk = Talk(tmp_path / "talk.db")
    await talk.go_on(300)
    assert (talk.most_summaries, talk.waited) == (1, 0)
    assert talk.summarized >= 3
    async with Harness.open(talk.path, models=talk.model, settings=SETTINGS) as harness:
        root = await harness.root()
        transcript = await harness.agent.transcripts.get(root.id)
        held: Any = transcript.builder._entries
        assert len(held) < 250
        assert len(await root.entries(limit=1_000)) > 600


@pytest.mark.long
async def test_twenty_thousand_messages_cost_what_the_first_thousand_did(tmp_path: Path) -> None:
    talk = Talk(tmp_path / "talk.db")
    await talk.go_on(500)
    early = await talk.go_on(500)
    before, opened_early = resident(), await talk.opening()
    await talk.go_on(8_500)
    late = await talk.go_on(500)
    grown, opened_late = resident() - before, await talk.opening()
    numbers = f"a turn {early:.5f} s, late {late:.5f} s; opening {opened_early[0]:.3f} s, late {opened_late[0]:.3f} s"
    assert talk.most_summaries == 1
    assert talk.summarized > 100
    assert grown < 10, f"{grown:.1f} MB"
    assert late < early * 1.5, numbers
    assert opened_late[0] < opened_early[0] * 3 + 0.02, numbers
    assert opened_late[1] < 250
