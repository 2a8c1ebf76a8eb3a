"""One send to several targets: each decided on its own, and a name for one content for ever."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure import InvalidValue
from perdure.subagents.orchestrator import Orchestrator
from perdure.subagents.rendering import workflow_lines
from perdure.subagents.tool import _agents
from tests.subagents.place import Place

pytestmark = pytest.mark.slow
Make = Callable[..., Place]


async def test_r147_r148_r149_a_list_of_targets_and_its_name(place: Make) -> None:
    at = place({"*": [{"say": "ok"}]})
    async with Orchestrator(at.root):
        wid = (await at.run("job", tasks=[{"agent": "worker", "task": "x", "key": key} for key in "abc"])).reply["wid"]
        found = await at.sealed("job")
        assert f"{wid} (worker)" in workflow_lines(found)[0], "without a name and labels it shows its agent"
        names = [f"{wid}/{key}" for key in "abc"]

        async def send(to: list[str], message: str, request: str | None = "n", **more: Any) -> list[tuple[str, str]]:
            outcomes = await at.client.ask_all("notify", {"message": message, **more}, to, request=request, wait=30)
            return [(one.request, one.state) for one in outcomes]

        first = await send([*names[:2], f"{wid}/none"], "hello")
        assert first == [("n:1", "applied"), ("n:2", "applied"), ("n:3", "rejected")]
        assert await send([*names[:2], f"{wid}/none"], "hello") == first, "the same is done once"
        assert [len((await at.call(wid, key)).notes) for key in "abc"] == [1, 1, 0]
        for other in (
            send([*names[:2], f"{wid}/none"], "bye"),
            send([*names, f"{wid}/none"], "hello"),
            send(names[:2], "hello"),
            send([names[1], names[0], f"{wid}/none"], "hello"),
        ):
            assert {state for _, state in await other} == {"conflict"}
        single = await at.client.ask("notify", {"to": names[0], "message": "hello"}, request="n", wait=30)
        assert single.state == "conflict", "the name stands for a list"
        assert [len((await at.call(wid, key)).notes) for key in "abc"] == [1, 1, 0], "nothing of them was sent"
        assert await send([names[2]], "alone", "one") == [("one", "applied")]
        assert {state for _, state in await send(names, "alone", "one")} == {"conflict"}
        for kind, body in (("answer", {"message": "x"}), ("steer", {"message": "x", "replaces": ["n"]})):
            with pytest.raises(InvalidValue):
                await at.client.ask_all(kind, body, names, wait=30)  # type: ignore[arg-type]


def test_r040_agents_are_told_with_their_source_and_model(place: Make) -> None:
    at = place({})
    (at.work / ".agents").mkdir()
    (at.work / ".agents" / "mine.md").write_text(
        "---\nname: mine\ndescription: Does it\nmodel: test/two\n---\nYou work.\n"
    )
    told = _agents(str(at.work)).splitlines()
    assert "mine (project, test/two): Does it" in told
    assert any(line.startswith("worker (builtin") for line in told)
