"""From stored names to code."""

from typing import Any

import pytest

from perdure.base.errors import InvalidValue
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry, Snapshot
from perdure.extensions.resolve import Resolved, resolve, stored_selection
from perdure.extensions.results import Add, Remove
from perdure.extensions.tool import Tool


def tool(name: str) -> Tool:
    async def function(ctx: Any) -> str:
        """Do."""
        return name

    return Tool(function, name=name)


async def hook(ctx: Any, subject: Any) -> None: ...


async def section(ctx: Any) -> str | None: ...


async def wrap(ctx: Any, args: Any, call_next: Any) -> None: ...


def bundle(name: str, *tools: str, wraps: tuple[str, ...] = (), sections: tuple[str, ...] = ()) -> Extension:
    extension = Extension(name)
    extension.add(*map(tool, tools))
    for wrapped in wraps:
        extension.wrap_tool(wrapped)(wrap)
    for shown in sections:
        extension.section(shown)(section)
    extension.before_tool(hook)
    return extension


def installed(*extensions: Extension) -> Snapshot:
    return Registry(extensions).snapshot()


def names(snapshot: Snapshot, extensions: Any = None, tools: Any = None, default: Any = None) -> Resolved:
    def stored(value: Any, what: str) -> Any:
        return None if value is None else stored_selection(value, what)

    return resolve(snapshot, stored(extensions, "extensions"), stored(tools, "tools"), default)


def test_the_default_is_everything_in_the_order_of_installation() -> None:
    found = names(installed(bundle("b", "x"), bundle("a", "y")))
    assert found.extensions == ("b", "a")
    assert list(found.tools) == ["x", "y"]


def test_a_host_may_name_its_default() -> None:
    snapshot = installed(bundle("a", "x"), bundle("b", "y"), bundle("c", "z"))
    assert names(snapshot, default=["c", "a", "c"]).extensions == ("c", "a")
    assert names(snapshot, default=[]).extensions == ()
    assert names(snapshot, Add("b"), default=["c"]).extensions == ("c", "b")
    assert names(snapshot, Remove("c"), default=["c", "a"]).extensions == ("a",)
    assert names(snapshot, ["b"], default=["c"]).extensions == ("b",)


def test_a_later_tool_of_a_name_replaces_the_earlier_in_its_place() -> None:
    first, second = bundle("a", "x", "y"), bundle("b", "z", "x")
    found = names(installed(first, second))
    assert list(found.tools) == ["x", "y", "z"]
    assert found.tools["x"].tool is second.tools["x"]


def test_wraps_hold_for_whichever_tool_wins_then_the_filter_applies() -> None:
    found = names(
        installed(bundle("a", "x", wraps=("x", "y")), bundle("b", "x", "y", wraps=("x", "none"))), tools=Remove("y")
    )
    assert list(found.tools) == ["x"]
    assert [made.extension for made in found.tools["x"].wraps] == ["a", "b"]


def test_hooks_and_sections_come_in_the_order_of_the_extensions() -> None:
    snapshot = installed(bundle("a", sections=("s", "t")), bundle("b", sections=("u", "s")))
    found = names(snapshot, ["b", "a"])
    assert [made.extension for made in found.hooks_at("before_tool")] == ["b", "a"]
    assert [(made.name, made.extension) for made in found.sections] == [("u", "b"), ("s", "a"), ("t", "a")]
    assert found.hooks_at("on_yield") == ()


def test_names_that_are_not_there_are_skipped_and_told() -> None:
    found = names(installed(bundle("a", "x")), ["gone", "a"], ["x", "lost"])
    assert found.extensions == ("a",)
    assert list(found.tools) == ["x"]
    assert found.unknown == ("gone", "lost")


def test_an_empty_list_is_exact() -> None:
    snapshot = installed(bundle("a", "x"))
    assert names(snapshot, []).tools == {}
    assert names(snapshot, tools=[]).tools == {}
    assert names(snapshot, tools=[]).extensions == ("a",)


def test_selections_are_stored_as_names() -> None:
    ops, bash = Extension("ops"), tool("bash")
    assert stored_selection([ops, "a", "ops"], "extensions") == ["ops", "a"]
    assert stored_selection((bash,), "tools") == ["bash"]
    assert stored_selection(Add("a", "b"), "extensions") == {"add": ["a", "b"]}
    assert stored_selection(Remove("bash"), "tools") == {"remove": ["bash"]}


@pytest.mark.parametrize(
    ("value", "what", "text"),
    [
        ("ops", "extensions", "extensions is a list of names, not one text (['ops'], Add('ops') or Remove('ops'))"),
        ("bash", "tools", "tools is a list of names, not one text (['bash'], Remove('bash'))"),
        (Add("bash"), "tools", "tools cannot be added by themselves (add the extension that brings them)"),
        (7, "tools", "tools is a list of names, not int"),
        ({"add": ["a"]}, "extensions", "extensions is a list of names, not dict"),
        (b"ops", "extensions", "extensions is a list of names, not bytes"),
        ([7], "tools", "tools is a list of names"),
        ([""], "tools", "tools is a list of names"),
        (Remove(""), "tools", "tools is a list of names"),
    ],
)
def test_what_is_no_selection_is_refused(value: Any, what: str, text: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        stored_selection(value, what)
    assert str(refused.value) == text
