"""Hosts that are killed before each of their commits, as often as they make one: the next execution goes on."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perdure.subagents.host.link import HostGone, HostRefused
from perdure.subagents.protocol import Evidence, Launch
from tests.subagents import mortal
from tests.subagents.hosting import Bench

pytestmark = pytest.mark.long
ASK = {"call": "ask", "args": {"question": "Which color?"}}
LOOK = {"call": "bash", "args": {"command": "echo x >> count"}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Story:
    """One generation from its first host to its end, as an orchestrator would see it through."""

    def __init__(self, folder: Path, turns: list[Any], **launch: Any) -> None:
        folder.mkdir()
        self.bench = Bench(folder, {"a": turns})
        self.bench.root.config.write_text(json.dumps({"models": "tests.subagents.mortal:MortalModels"}))
        self.more = launch
        self.questions: set[tuple[str, int]] = set()
        self.evidence: list[Evidence] = []
        self.died = False
        self.steers = ASK not in turns  # a question would be interrupted by it

    async def run(self, dies: int) -> Evidence:
        """Kill the first host before that commit; go on until the generation has its result."""
        for attempt in range(1, 5):
            launch = self.bench.launch(attempt, **self.more)
            self.bench.environment = {mortal.VARIABLE: str(dies)} if attempt == 1 else {}
            await self._one(launch)
            self.evidence.append(found := await self.bench.evidence(launch))
            if found.report is not None or (found.settled and found.text):
                return found
        raise AssertionError(self.evidence)

    async def _one(self, launch: Launch) -> None:
        self.bench.start(launch)
        try:
            link = await self.bench.connect(launch)
            try:
                assert await link.begin(launch, "n1") == "begun"
                if self.steers:
                    await link.deliver("s1", "steer", "Mind the gap")
                async for news in link.news():
                    if news.what == "question":
                        self.questions.add((news.qid, news.rev))
                        await link.answer("a1", news.qid, news.rev, "blue")
                    if news.what == "settled":
                        break
                else:
                    self.died = True
            finally:
                await link.disconnect()
        except (HostGone, HostRefused):
            self.died = True
        finally:
            self.bench.kill()

    @property
    def last(self) -> list[list[str]]:
        messages: list[list[str]] = self.bench.requests[-1]["messages"]
        return messages


async def explore(folder: Path, turns: list[Any], **launch: Any) -> list[Story]:
    """A story for each commit of the first host."""
    stories = []
    for dies in range(1, 200):
        story = Story(folder / str(dies), turns, **launch)
        await story.run(dies)
        stories.append(story)
        if not story.died:
            return stories
    raise AssertionError("it never lived to its end")


def check_messages(story: Story, task: str = "Do it") -> None:
    """R-004, R-005, R-006."""
    users = Counter(text for role, text in story.last if role == "user")
    assert users[task] == 1
    assert users["Mind the gap"] <= 1
    notes = [text for text in users if "processes your tools had started" in text]
    assert len(notes) <= len(story.evidence) - 1, "at most one for each interruption"


async def test_r004_r005_r006_tools_and_text_survive_a_kill_before_each_commit(tmp_path: Path) -> None:
    stories = await explore(tmp_path, [LOOK, LOOK, {"say": "done"}])
    assert len(stories) > 10
    for story in stories:
        check_messages(story)
        assert story.evidence[-1].text == "done"
        assert "s1" in story.evidence[-1].taken
        ran = (story.bench.work / "count").read_text().count("x") if (story.bench.work / "count").exists() else 0
        cut = sum("bash" in evidence.unfinished for evidence in story.evidence)
        assert 2 - cut <= ran <= 2, "no unsafe call runs twice, and none is left out but a cut one"
        assert len(story.bench.requests) <= 4, "one request is made anew at most"


async def test_r184_r185_a_question_is_asked_once_and_its_answer_given_once(tmp_path: Path) -> None:
    stories = await explore(tmp_path, [ASK, {"say": "done"}])
    for story in stories:
        check_messages(story)
        assert {rev for qid, rev in story.questions} == {1}
        assert len(story.questions) == 1
        results = [text for role, text in story.last if role == "tool_result"]
        assert [text.split("\n")[0] for text in results] == ["blue"]
        assert "a1" in story.evidence[-1].taken
        assert all(evidence.unfinished == [] for evidence in story.evidence)


async def test_r202_a_report_is_not_asked_for_twice(tmp_path: Path) -> None:
    report = {"call": "report", "args": {"outcome": "ok", "data": {"n": 1}}}
    stories = await explore(tmp_path, [LOOK, report, {"say": "never"}], schema=SCHEMA)
    for story in stories:
        check_messages(story)
        assert story.evidence[-1].report == {"outcome": "ok", "summary": "", "data": {"n": 1}}
        assert len(story.bench.requests) <= 3
        assert all(request["done"] < 2 for request in story.bench.requests), "nothing is asked after the report"
