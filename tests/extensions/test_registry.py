"""Installing, replacing and removing code while agents run."""

import asyncio
from typing import Any

import pytest

from perdure import Document, Extension, InvalidDefinition, NotFound, Registry, TaskRun, phase, task
from perdure.storage.memory import MemoryStorage
from perdure.testing.clock import settle
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import Gate, agent, ask, results


def version(text: str, gate: Gate | None = None) -> Extension:
    extension = Extension("changing")

    @extension.tool
    async def tell(ctx: Any) -> str:
        """Tell."""
        if gate is not None:
            await gate.stop()
        return text

    return extension


HOSTILE = [
    "",
    "../../x",
    "..%2f..%2fx",
    "/etc/x",
    "a/b",
    "x" * 300,
    "a\x00",
    "．．",
    "C:\\x",
    "..",
    ".a",
    "A",
    "a b",
    5,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_could_be_a_path_is_refused(name: Any) -> None:
    with pytest.raises(InvalidDefinition):
        Extension(name)


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "\ud800", 5, None])
def test_a_section_name_that_could_not_be_stored_is_refused(name: Any) -> None:
    extension = Extension("a")
    with pytest.raises(InvalidDefinition):

        @extension.section(name)
        async def render(ctx: Any) -> str:
            return "x"


async def test_running_work_finishes_on_the_code_it_took_and_the_next_call_takes_the_new() -> None:
    gate = Gate()
    async with agent([call("tell"), call("tell"), "end"], version("old", gate)) as (harness, root):
        submission = await root.submit("a")
        await gate.reached.wait()
        harness.agent.registry.install(version("new"))
        gate.go.set()
        assert (await submission.wait()).text == "end"
        assert await results(root) == ["old", "new"]


def test_replacing_keeps_the_place_and_a_clash_changes_nothing() -> None:
    registry = Registry([Extension("a"), version("old"), Extension("c")])
    registry.install(version("new"))
    assert list(registry.snapshot().extensions) == ["a", "changing", "c"]
    Document("test.doc", dict[str, int])
    before = registry.snapshot()
    first, second = Extension("first"), Extension("second")
    for extension in (first, second):
        extension.add(Document("test.doc", dict[str, int]))
    registry.install(first)
    known = registry.snapshot()
    assert known.version == before.version + 1
    for bad in (second, "text", None):
        with pytest.raises(InvalidDefinition):
            registry.install(bad)  # type: ignore[arg-type]
        assert registry.snapshot() is known
    second.section("still open")
    with pytest.raises(NotFound):
        registry.uninstall("second")


def test_an_installed_extension_is_frozen() -> None:
    extension = version("old")
    Registry([extension])
    with pytest.raises(InvalidDefinition):
        extension.section("late")
    with pytest.raises(InvalidDefinition):
        extension.add(Document("test.late", dict[str, int]))


def test_a_reserved_prefix_is_refused() -> None:
    with pytest.raises(InvalidDefinition):
        Extension("a").add(Document("perdure.mine", dict[str, int]))


async def test_uninstalling_takes_the_tool_from_the_next_request_and_installing_gives_it_back() -> None:
    model = ScriptedModel(["one", "two", "three"])
    async with agent(model, version("x")) as (harness, root):
        await root.configure(extensions=["changing"])
        await ask(root)
        harness.agent.registry.uninstall("changing")
        await ask(root)
        assert (await root.agent()).resolved.unknown == ("changing",)
        harness.agent.registry.install(version("y"))
        await ask(root)
        assert [len(request.tools) for request in model.requests] == [1, 0, 1]


@task("test.late", version=1)
class Late:
    @phase(first=True)
    async def go(self, run: TaskRun) -> Any:
        return run.complete("ran")


async def test_a_task_without_its_code_is_blocked_and_runs_when_the_code_is_installed() -> None:
    storage = MemoryStorage()
    async with agent([], Extension("late", tasks=[Late]), storage=storage) as (harness, root):
        async with harness.session.transaction() as tx:
            id = tx.create_task(Late(), conversation=root.id)
    async with agent([], storage=storage) as (harness, root):
        await harness.resume()
        (row,) = harness.inspect()["tasks"]
        assert row["blocked"]
        assert not harness.wake().active
        waiting = asyncio.create_task(harness.tasks.wait(id))
        harness.agent.registry.install(Extension("late", tasks=[Late]))
        assert (await waiting).status == "completed"
        await settle()
        assert harness.inspect()["tasks"] == []
