"""Which agent a conversation has: names, stored; code, found when it is needed."""

from typing import Any

import pytest

from perdure import UNSET, Add, Extension, InvalidValue, Remove, Settings, TaskRun, phase, task
from perdure.agent.configure import configure
from perdure.storage.memory import MemoryStorage
from perdure.testing.scripted_model import ScriptedModel, call
from tests.agent.kit import agent, ask

OWNED: dict[str, Any] = {}


@task("test.owner", version=1)
class Owner:
    @phase(first=True)
    async def go(self, run: TaskRun) -> Any:
        async with run.transaction() as tx:
            OWNED["copy"] = tx.create_conversation(owner=run.task_id)
            OWNED["changed"] = changed = tx.create_conversation(owner=run.task_id)
            await configure(tx, changed, instructions=None, thinking="low")
            OWNED["free"] = tx.create_conversation(owner=None)
        OWNED["agents"] = {name: await run.host.names(OWNED[name]) for name in ("copy", "changed", "free")}
        return run.complete(None)


def named(name: str, *tools: str) -> Extension:
    extension = Extension(name)
    for tool in tools:

        async def act(ctx: Any) -> str:
            """Act."""
            return name

        extension.tool(name=tool)(act)
    return extension


async def test_only_given_fields_change_none_clears_and_unset_leaves_alone() -> None:
    async with agent([], instructions="Be brief.", cwd="/tmp") as (_, root):
        await root.configure(thinking="high", instructions=None, cwd=UNSET)
        found = await root.agent()
        assert (found.model, found.thinking, found.instructions, found.cwd) == ("scripted:model", "high", None, "/tmp")


BAD: list[dict[str, Any]] = [
    {"model": "no-provider"},
    {"model": 5},
    {"model": ""},
    {"thinking": "hard"},
    {"extensions": "a"},
    {"tools": "bash"},
    {"tools": 5},
    {"tools": b"ab"},
    {"tools": [5]},
    {"tools": {"add": ["x"]}},
    {"tools": Add(5)},  # type: ignore[arg-type]
    {"extensions": [""]},
    {"instructions": "\ud800"},
    {"cwd": 5},
]


@pytest.mark.parametrize("fields", BAD, ids=map(str, BAD))
async def test_what_is_no_name_is_refused_and_nothing_changes(fields: dict[str, Any]) -> None:
    async with agent(["one"]) as (harness, root):
        before = harness.session.seq
        with pytest.raises(InvalidValue):
            await root.configure(**fields)
        assert harness.session.seq == before
        assert await ask(root) == "one"


async def test_an_unknown_field_is_refused() -> None:
    async with agent([]) as (harness, root):
        with pytest.raises(InvalidValue, match="colour"):
            async with harness.session.transaction() as tx:
                await configure(tx, root.id, colour="red")


async def test_selections_are_exact_or_edit_the_hosts_default() -> None:
    async with agent([], named("a", "x"), named("b", "y", "z"), named("c")) as (harness, root):

        async def found() -> tuple[Any, Any]:
            now = await root.agent()
            return now.extensions, now.tools

        assert await found() == (("a", "b", "c"), ("x", "y", "z"))
        await root.configure(extensions=["b", "a", "b"], tools=Remove("y"))
        assert await found() == (("b", "a"), ("z", "x"))
        await root.configure(extensions=Remove("a"), tools=None)
        assert await found() == (("b", "c"), ("y", "z"))
        await root.configure(extensions=None)
        harness.settings.extensions = ["c", "c"]
        assert await found() == (("c",), ())
        await root.configure(extensions=Add("a"))
        assert await found() == (("c", "a"), ("x",))
        await root.configure(extensions=[named("b")])
        assert await found() == (("b",), ("y", "z"))


async def test_unknown_names_are_skipped_and_kept() -> None:
    async with agent([], named("a", "x")) as (harness, root):
        await root.configure(extensions=["a", "later"], tools=["x", "new"])
        assert (await root.agent()).resolved.unknown == ("later", "new")
        harness.agent.registry.install(named("later", "new"))
        assert (await root.agent()).tools == ("x", "new")


async def test_a_name_selected_twice_does_not_run_its_hooks_twice() -> None:
    extension, seen = named("a", "x"), []

    @extension.before_tool
    async def gate(ctx: Any, made: Any) -> None:
        seen.append(1)

    async with agent([call("x"), "end"], extension) as (harness, root):
        harness.settings.extensions = ["a", "a"]
        await ask(root)
        assert seen == [1]


async def test_the_hosts_defaults_are_read_live() -> None:
    model = ScriptedModel(["one", "two"])
    async with agent(model, settings=Settings(instructions="first")) as (harness, root):
        await ask(root)
        harness.settings.instructions = "second"
        await ask(root)
        assert [request.system for request in model.requests] == ["first", "second"]
        await root.configure(model=None)
        assert (await root.agent()).model is None
        harness.settings.default_model = "other:model"
        assert (await root.agent()).model == "other:model"


async def test_a_fork_keeps_the_agent_as_it_was_at_the_entry() -> None:
    async with agent(["one", "two"], instructions="old") as (_, root):
        first = await (await root.submit("a")).wait()
        await root.configure(instructions="new")
        await ask(root, "b")
        fork = await root.fork(first.entry_id)
        assert (await fork.agent()).instructions == "old"
        await fork.configure(instructions="own")
        assert (await root.agent()).instructions == "new"


async def test_a_conversation_that_a_task_owns_begins_with_the_agent_of_its_owner() -> None:
    extension = Extension("owning", tasks=[Owner])
    async with agent([], extension, instructions="Be brief.") as (harness, root):
        async with harness.session.transaction() as tx:
            id = tx.create_task(Owner(), conversation=root.id)
        await harness.resume()
        await harness.tasks.wait(id)
        agents = OWNED["agents"]
        assert (agents["copy"].model, agents["copy"].instructions) == ("scripted:model", "Be brief.")
        assert (agents["changed"].model, agents["changed"].instructions) == ("scripted:model", None)
        assert agents["changed"].thinking == "low"
        assert agents["free"].model is None
        await root.configure(instructions="changed later")
        assert (await harness.agent.names(OWNED["copy"])).instructions == "Be brief."


async def test_an_agent_survives_a_restart() -> None:
    storage = MemoryStorage()
    async with agent([], storage=storage, instructions="Be brief.") as (_, root):
        await root.configure(tools=Remove("x"))
    async with agent([], named("a", "x", "y"), storage=storage, instructions="ignored") as (_, root):
        now = await root.agent()
        assert (now.instructions, now.tools) == ("Be brief.", ("y",))
