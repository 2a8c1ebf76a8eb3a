"""What a launch gives its host: the prompt, tools, skills, models, extensions."""

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.subagents.host.link import HostRefused
from perdure.subagents.host.texts import GENERAL, OWN, project_context
from perdure.subagents.skills import find_skills
from tests.subagents.hosting import Bench, until

EXTENSIONS = """
from perdure import Extension, Registry

extra = Extension("extra")

@extra.tool(replay="safe")
async def weather(ctx, place: str) -> str:
    \"\"\"Tell the weather.\"\"\"
    return "sunny in " + place

@extra.tool(replay="safe")
async def subagents(ctx, task: str) -> str:
    \"\"\"Start others.\"\"\"
    return "no"

registry = Registry([extra])
"""


async def run(bench: Bench, **launch: Any) -> dict[str, Any]:
    """The first request of a call."""
    async with bench.host(bench.launch(**launch)) as link:
        await until(link, "settled")
    return bench.requests[0]


@pytest.mark.slow
async def test_r021_a_prompt_stands_alone_or_is_added(tmp_path: Path) -> None:
    for mode in ("replace", "append"):
        (tmp_path / mode).mkdir()
        bench = Bench(tmp_path / mode, {"a": [{"say": "done"}]})
        asked = await run(bench, agent={"prompt": "Be brief.", "systemPromptMode": mode})
        assert "Be brief." in asked["system"]
        assert OWN in asked["system"]
        assert (GENERAL in asked["system"]) == (mode == "append")


@pytest.mark.slow
async def test_r021_the_projects_own_instructions_are_inherited_where_the_agent_wants_them(tmp_path: Path) -> None:
    for wanted in (True, False):
        (tmp_path / str(wanted)).mkdir()
        bench = Bench(tmp_path / str(wanted), {"a": [{"say": "done"}]})
        (bench.work / ".git").mkdir()
        (bench.work / "AGENTS.md").write_text("Tabs, never spaces.")
        asked = await run(bench, agent={"prompt": "P.", "inheritProjectContext": wanted})
        assert ("Tabs, never spaces." in asked["system"]) == wanted


def test_project_context_goes_from_the_projects_root_down_to_the_folder(tmp_path: Path) -> None:
    inner = tmp_path / "project" / "part"
    inner.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("outside")
    (tmp_path / "project" / ".git").mkdir()
    (tmp_path / "project" / "AGENTS.md").write_text("root")
    (inner / "AGENTS.md").write_text("part")
    assert [text for _, text in project_context(inner)] == ["root", "part"]


@pytest.mark.slow
async def test_r039_skills_are_offered_by_reference_and_a_missing_one_fails_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done"}]})
    skill(bench.work, "baking", "Bake bread.")
    skill(bench.work, "sailing", "Sail boats.")
    asked = await run(bench, skills=["baking", "flying"])
    assert "baking: Bake bread." in asked["system"]
    assert "the whole recipe" not in asked["system"]
    assert "Sail" not in asked["system"], "the rest is hidden"
    assert "not there: flying" in asked["system"]


@pytest.mark.slow
async def test_r039_all_skills_are_offered_to_who_inherits_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done"}]})
    skill(bench.work, "baking", "Bake bread.")
    skill(bench.work, "sailing", "Sail boats.")
    asked = await run(bench, agent={"prompt": "P.", "inheritSkills": True})
    assert "Bake bread." in asked["system"]
    assert "Sail boats." in asked["system"]


def test_skills_are_described_by_their_front_matter(tmp_path: Path) -> None:
    skill(tmp_path, "one", ">-\n  Folded over\n  two lines.\nother: x")
    skill(tmp_path, "two", '"Quoted: yes."')
    (tmp_path / ".agents" / "skills" / "three").mkdir()
    (tmp_path / ".agents" / "skills" / "three" / "SKILL.md").write_text("No front matter.")
    found = find_skills(tmp_path)
    assert found["one"].description == "Folded over two lines."
    assert found["two"].description == "Quoted: yes."
    assert found["three"].description == ""


def skill(project: Path, name: str, description: str) -> None:
    folder = project / ".agents" / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\nthe whole recipe\n")


@pytest.mark.slow
async def test_r016_r038_tools_of_the_users_extensions_are_offered_but_none_that_starts_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"call": "weather", "args": {"place": "Ulm"}}, {"say": "done"}]})
    (bench.root.path / "own_tools.py").write_text(EXTENSIONS)
    config = json.loads(bench.root.config.read_text())
    bench.root.config.write_text(json.dumps({**config, "extensions": "own_tools:registry"}))
    asked = await run(bench)
    assert sorted(asked["tools"]) == ["ask", "bash", "edit", "read", "weather", "write"]
    assert ["tool_result", "sunny in Ulm"] in bench.requests[-1]["messages"]
    refused = bench.launch(2, tools=["read", "subagents"])
    bench.start(refused)
    link = await bench.connect(refused)
    try:
        with pytest.raises(HostRefused, match="no such tool: subagents"):
            await link.begin(refused, "n1")
    finally:
        await link.disconnect()
        bench.kill()


@pytest.mark.slow
async def test_r037_protocol_tools_work_with_an_empty_list(tmp_path: Path) -> None:
    ask = {"call": "ask", "args": {"question": "Which?"}}
    report = {"call": "report", "args": {"outcome": "ok", "data": 1}}
    bench = Bench(tmp_path, {"a": [ask, report]})
    launch = bench.launch(tools=[], schema={"type": "integer"})
    async with bench.host(launch) as link:
        question = await until(link, "question")
        await link.answer("a1", question.qid, question.rev, "this")
        await until(link, "settled")
    assert bench.requests[0]["tools"] == ["ask", "report"]
    report_of = (await bench.evidence(launch)).report
    assert report_of is not None
    assert report_of["data"] == 1


@pytest.mark.slow
async def test_r256_a_switch_while_the_provider_refuses_goes_on_in_the_same_execution(tmp_path: Path) -> None:
    refusal = {"fail": "usage limit reached", "kind": "rate_limited"}
    bench = Bench(tmp_path, {"a": [{"say": "done", "first": [refusal, refusal]}]})
    launch, seen = bench.launch(), list[Any]()
    async with bench.host(launch) as link:
        await until(link, "answer", seen)
        assert await link.set_model("m1", "other:two") == "set"
        with pytest.raises(HostRefused):
            await link.set_model("m2", "nonsense")
        await until(link, "settled", seen)
    assert {request["exec"] for request in bench.requests} == {launch.exec}
    assert bench.requests[0]["model"] == "test:one"
    assert [request["model"] for request in bench.requests[1:]] == ["other:two"] * (len(bench.requests) - 1)
    assert "parked" not in [news.what for news in seen], "it goes on by itself"
    assert [news.code for news in seen if news.stop == "error"] == ["rate_limited"] * (len(bench.requests) - 1)
    assert (await bench.evidence(launch)).model == "other:two"
