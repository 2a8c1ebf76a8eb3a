"""Extensions: bundles that are checked while they are written and closed once they are installed."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure.base.errors import InvalidDefinition
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.extensions.tool import Tool
from perdure.session.documents import Document
from perdure.session.entries import entry
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun


@task("ops.deploy")
class Deploy:
    version: str

    @phase(first=True)
    async def go(self, run: TaskRun) -> Next[str]:
        return run.complete(self.version)


@entry("ops.note")
class Note:
    text: str


Board: Document[Any] = Document("ops.board", dict, initial=dict)


async def look(ctx: Any, place: str) -> str:
    """Look at a place."""
    return place


async def watch(ctx: Any, subject: Any) -> None: ...


async def wrapped(ctx: Any, args: dict[str, Any], call_next: Any) -> Any: ...


async def told(ctx: Any) -> str | None: ...


def test_what_is_defined_elsewhere_is_registered_by_its_name() -> None:
    tool = Tool(look)
    ops = Extension("ops", tasks=[Deploy])
    ops.add(Note, Board, tool)
    assert [list(found) for found in (ops.tasks, ops.entries, ops.documents, ops.tools)] == [
        ["ops.deploy"],
        ["ops.note"],
        ["ops.board"],
        ["look"],
    ]
    ops.add(tool, Board, Note, Deploy)
    assert list(ops.tools) == ["look"]


def test_decorators_define_and_register() -> None:
    ops = Extension("ops")
    tool = ops.tool(look)
    named = ops.tool(name="peek", replay="safe")(look)
    assert dict(ops.tools) == {"look": tool, "peek": named}
    assert ops.section("now")(told) is told
    assert ops.wrap_tool(tool)(wrapped) is wrapped
    assert ops.before_tool(watch) is watch
    assert ops.after_tool(tools=[tool, "bash"])(watch) is watch
    assert ops.on_abort(watch) is watch
    assert ops.before_request(watch) is watch
    assert ops.after_response(watch) is watch
    assert [(hook.point, hook.tools) for hook in ops.hooks] == [
        ("before_tool", None),
        ("after_tool", frozenset({"look", "bash"})),
        ("on_abort", None),
        ("before_request", None),
        ("after_response", None),
    ]
    assert ops.hooks[0].name == "ops.watch"
    assert [(wrap.tool, wrap.extension) for wrap in ops.wraps] == [("look", "ops")]
    assert list(ops.sections) == ["now"]


def test_a_second_thing_of_one_name_is_refused() -> None:
    ops = Extension("ops")
    ops.tool(look)
    ops.section("now")(told)
    with pytest.raises(InvalidDefinition, match=r"^extension ops: tool 'look' is defined twice$"):
        ops.tool(look)
    with pytest.raises(InvalidDefinition, match=r"^extension ops: section 'now' is defined twice$"):
        ops.section("now")(told)
    with pytest.raises(InvalidDefinition, match=r"^extension ops: tool 'peek' is defined twice$"):
        ops.add(Tool(look, name="peek"), Tool(look, name="peek"))
    assert list(ops.tools) == ["look"]


@pytest.mark.parametrize("wrong", [watch, "ops.deploy", 7, None, int])
def test_adding_is_all_or_nothing(wrong: Any) -> None:
    ops = Extension("ops")
    with pytest.raises(InvalidDefinition, match=r"^extension ops: cannot register "):
        ops.add(Deploy, wrong)
    assert not ops.tasks


def test_kinds_are_names_and_perdures_own_are_reserved() -> None:
    with pytest.raises(InvalidDefinition) as reserved:
        Extension("ops").add(Document("perdure.mine", dict, initial=dict))
    assert str(reserved.value) == "extension ops: document kind 'perdure.mine' uses the reserved prefix 'perdure.'"
    with pytest.raises(InvalidDefinition, match=r"^extension ops: document kind is no name: '..\\\\x'"):
        Extension("ops").add(Document("..\\x", dict, initial=dict))


def test_every_change_is_refused_once_it_is_installed() -> None:
    ops = Extension("ops")
    late_section, late_hook, late_wrap = ops.section("late"), ops.hook("before_tool"), ops.wrap_tool("bash")
    late_tool = ops.tool(name="late")
    Registry([ops])
    changes: list[Callable[[], Any]] = [
        lambda: ops.add(Deploy),
        lambda: ops.tool(look),
        lambda: ops.section("x"),
        lambda: ops.wrap_tool("x"),
        lambda: ops.hook("after_response"),
        lambda: ops.before_tool(watch),
        lambda: late_section(told),
        lambda: late_hook(watch),
        lambda: late_wrap(wrapped),
        lambda: late_tool(look),
    ]
    for change in changes:
        with pytest.raises(InvalidDefinition, match=r"^extension ops is installed and cannot change"):
            change()
    assert [len(found) for found in (ops.tools, ops.sections, ops.hooks, ops.wraps, ops.tasks)] == [0] * 5


def test_nothing_gets_in_past_the_checks() -> None:
    ops = Extension("ops")
    with pytest.raises(TypeError):
        ops.tools["x"] = Tool(look)  # type: ignore[index]


def test_what_could_not_be_called_is_refused_with_how_it_is_called() -> None:
    ops = Extension("ops")

    async def one(ctx: Any) -> None: ...

    async def keyword(ctx: Any, subject: Any, *, more: int) -> None: ...

    def sync(ctx: Any, subject: Any) -> None: ...

    with pytest.raises(
        InvalidDefinition, match=r"^extension ops: before_tool hook: it is called as \(ctx, subject\): "
    ):
        ops.before_tool(one)
    with pytest.raises(InvalidDefinition, match="missing a required"):
        ops.before_tool(keyword)
    with pytest.raises(InvalidDefinition, match=r"^extension ops: before_tool hook: make it an async function$"):
        ops.before_tool(sync)
    with pytest.raises(InvalidDefinition, match=r"wrap of bash: it is called as \(ctx, args, call_next\)"):
        ops.wrap_tool("bash")(watch)
    with pytest.raises(InvalidDefinition, match=r"section now: it is called as \(ctx\)"):
        ops.section("now")(watch)

    async def open_ended(*given: Any, more: int = 0) -> None: ...

    ops.before_tool(open_ended)


def test_a_filter_that_would_never_or_always_hold_is_refused() -> None:
    ops = Extension("ops")
    wrong: list[tuple[Any, str]] = [
        ("bash", r"tools is a list of names, not 'bash' \(tools=\['bash'\]\)$"),
        ([], "tools is empty, so it would never be asked"),
        (["no name"], "not a tool name: 'no name'"),
        ([7], "not a tool name: 7"),
    ]
    for tools, text in wrong:
        with pytest.raises(InvalidDefinition, match=rf"^extension ops: before_tool hook: {text}"):
            ops.before_tool(tools=tools)
    with pytest.raises(InvalidDefinition, match=r"only before_tool, after_tool, on_abort can be limited to tools"):
        ops.hook("before_request", tools=["bash"])
    with pytest.raises(InvalidDefinition, match=r"^extension ops: no hook point 'before_lunch'"):
        ops.hook("before_lunch")


def test_a_hook_concerns_the_tools_that_it_names() -> None:
    ops = Extension("ops")
    ops.before_tool(tools=["bash"])(watch)
    assert [ops.hooks[0].concerns(tool) for tool in ("bash", "read")] == [True, False]
