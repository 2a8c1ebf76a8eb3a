"""The registry: whole changes, or none."""

from typing import Any

import pytest

from perdure.base.errors import InvalidDefinition, NotFound
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.session.documents import Document
from perdure.session.entries import entry, entry_kind
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task, task_definition
from perdure.tasks.runtime import TaskRun


def deploy() -> type:
    @task("ops.deploy")
    class Deploy:
        @phase(first=True)
        async def go(self, run: TaskRun) -> Next[None]:
            return run.complete(None)

    return Deploy


def note() -> type:
    @entry("ops.note")
    class Note:
        text: str

    return Note


def board() -> Document[Any]:
    return Document("ops.board", dict, initial=dict)


def bundle(name: str, *things: Any) -> Extension:
    extension = Extension(name)
    extension.add(*things)
    return extension


def test_a_snapshot_finds_what_extensions_bring() -> None:
    kind, document, text = deploy(), board(), note()
    snapshot = Registry([bundle("a", kind), bundle("b", document, text)]).snapshot()
    assert list(snapshot.extensions) == ["a", "b"]
    assert snapshot.task("ops.deploy") is task_definition(kind)
    assert snapshot.document("ops.board") is document
    assert snapshot.entry("ops.note") is entry_kind(text)
    assert [snapshot.task("x"), snapshot.document("x"), snapshot.entry("x")] == [None] * 3


def test_the_same_name_replaces_in_place() -> None:
    registry = Registry([Extension("a"), Extension("b")])
    before = registry.snapshot()
    new = bundle("a", deploy())
    registry.install(new)
    after = registry.snapshot()
    assert list(after.extensions) == ["a", "b"]
    assert after.extensions["a"] is new
    assert after.version == before.version + 1
    assert not before.tasks
    registry.install(bundle("a", deploy()))
    assert after.extensions["a"] is new, "a snapshot never changes"


def test_a_snapshot_cannot_be_written_to() -> None:
    snapshot = Registry([Extension("a")]).snapshot()
    for mapping in (snapshot.extensions, snapshot.tasks, snapshot.documents, snapshot.entries):
        with pytest.raises(TypeError):
            mapping["x"] = None  # type: ignore[index]


@pytest.mark.parametrize(
    ("make", "what"),
    [(deploy, "task kind 'ops.deploy'"), (board, "document kind 'ops.board'"), (note, "entry kind 'ops.note'")],
)
def test_one_kind_has_one_meaning(make: Any, what: str) -> None:
    registry = Registry([bundle("a", make())])
    before, told = registry.snapshot(), list[int]()
    registry.on_change(lambda: told.append(1))
    second = bundle("b", deploy() if make is not deploy else board(), make())
    with pytest.raises(InvalidDefinition) as refused:
        registry.install(second)
    assert refused.value.what == f"extension b: {what} is taken by extension a"
    assert registry.snapshot() is before
    assert not told
    second.hook("after_response")


def test_the_same_thing_may_be_brought_twice() -> None:
    shared = deploy()
    registry = Registry([bundle("a", shared), bundle("b", shared)])
    registry.uninstall("a")
    assert registry.snapshot().task("ops.deploy") is task_definition(shared)


def test_an_uninstalled_extension_is_gone_and_can_come_back() -> None:
    one = bundle("a", deploy())
    registry = Registry([one, Extension("b")])
    registry.uninstall("a")
    assert list(registry.snapshot().extensions) == ["b"]
    assert registry.snapshot().task("ops.deploy") is None
    registry.install(one)
    assert list(registry.snapshot().extensions) == ["b", "a"]
    with pytest.raises(NotFound, match=r"^no extension 'c' is installed$"):
        registry.uninstall("c")


@pytest.mark.parametrize("thing", ["a", None, Extension, {"name": "a"}])
def test_only_extensions_are_installed(thing: Any) -> None:
    with pytest.raises(InvalidDefinition, match=r"^not an extension: "):
        Registry([thing])


def test_listeners_see_the_new_snapshot_until_they_stop() -> None:
    registry = Registry()
    seen: list[list[str]] = []

    def listener() -> None:
        seen.append(list(registry.snapshot().extensions))

    stop, stop_again = registry.on_change(listener), registry.on_change(listener)
    registry.install(Extension("a"))
    stop()
    stop()
    registry.install(Extension("b"))
    stop_again()
    registry.uninstall("a")
    assert seen == [["a"], ["a"], ["a", "b"]]


def test_a_listener_that_raises_stops_neither_the_change_nor_the_others() -> None:
    registry = Registry()
    told: list[str] = []

    def broken() -> None:
        raise ValueError("no")

    registry.on_change(broken)
    registry.on_change(lambda: told.append("other"))
    extension = Extension("a")
    with pytest.raises(ValueError, match="no"):
        registry.install(extension)
    assert told == ["other"]
    assert registry.snapshot().extensions["a"] is extension
    with pytest.raises(InvalidDefinition):
        extension.hook("after_response")


def test_a_listener_may_change_the_registry() -> None:
    registry = Registry()
    registry.on_change(lambda: registry.install(Extension("b")) if "b" not in registry.snapshot().extensions else None)
    registry.install(Extension("a"))
    assert list(registry.snapshot().extensions) == ["a", "b"]
    assert registry.snapshot().version == 2
