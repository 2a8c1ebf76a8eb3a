"""Drafts: every edit is recorded, nothing leaks in or out, and a finished draft is finished."""

import copy
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.base.delta import apply, same
from perdure.base.drafts import Draft, is_draft, plain
from perdure.base.errors import InvalidValue, InvocationEnded
from perdure.base.frozen import frozen
from tests.base.values import containers, keys, values

Edit = Callable[[Any], object]


def _edited(value: Any, *edits: Edit) -> tuple[Any, list[dict[str, Any]]]:
    draft = Draft(value)
    for edit in edits:
        edit(draft.root)
    return draft.finish()


def _set(*path: Any, to: Any) -> Edit:
    def edit(root: Any) -> None:
        for step in path[:-1]:
            root = root[step]
        root[path[-1]] = to

    return edit


RECORDED: list[tuple[Any, list[Edit], Any, list[dict[str, Any]]]] = [
    (
        {"t": "a"},
        [_set("t", to="ab"), _set("t", to="abc")],
        {"t": "abc"},
        [{"op": "append", "path": "/t", "value": "bc"}],
    ),
    (
        {"t": "a"},
        [_set("t", to="x"), _set("t", to="xy")],
        {"t": "xy"},
        [{"op": "replace", "path": "/t", "value": "xy"}],
    ),
    ({"t": ""}, [_set("t", to="x")], {"t": "x"}, [{"op": "replace", "path": "/t", "value": "x"}]),
    ({}, [_set("t", to=""), _set("t", to="x")], {"t": "x"}, [{"op": "add", "path": "/t", "value": "x"}]),
    ({"l": [1]}, [lambda root: root["l"].append(2)], {"l": [1, 2]}, [{"op": "add", "path": "/l/-", "value": 2}]),
    ({"l": [1, 2]}, [lambda root: root["l"].pop(0)], {"l": [2]}, [{"op": "remove", "path": "/l/0"}]),
    ({"l": [1, 2]}, [lambda root: root["l"].remove(2)], {"l": [1]}, [{"op": "remove", "path": "/l/1"}]),
    (
        {"a/b": {"~": 1}},
        [_set("a/b", "~", to=2)],
        {"a/b": {"~": 2}},
        [{"op": "replace", "path": "/a~1b/~0", "value": 2}],
    ),
    ({"t": "a"}, [_set("t", to="ab"), _set("t", to="x")], {"t": "x"}, [{"op": "replace", "path": "/t", "value": "x"}]),
    ({"n": 1}, [_set("n", to=n) for n in range(9)], {"n": 8}, [{"op": "replace", "path": "/n", "value": 8}]),
    ({"n": 1}, [_set("n", to=True)], {"n": True}, [{"op": "replace", "path": "/n", "value": True}]),
    ({"n": 1}, [_set("n", to=1.0)], {"n": 1.0}, [{"op": "replace", "path": "/n", "value": 1.0}]),
    ([1], [_set(0, to=2)], [2], [{"op": "replace", "path": "/0", "value": 2}]),
    (
        {"l": [{"id": i, "text": "something long"} for i in range(9)]},
        [lambda root: root.update(l=[item for item in root["l"] if item["id"] != 4])],
        {"l": [{"id": i, "text": "something long"} for i in range(9) if i != 4]},
        [{"op": "remove", "path": "/l/4"}],
    ),
]


@pytest.mark.parametrize(("value", "edits", "result", "ops"), RECORDED)
def test_edits_become_operations(value: Any, edits: list[Edit], result: Any, ops: list[Any]) -> None:
    kept = copy.deepcopy(value)
    found, found_ops = _edited(value, *edits)
    assert same(found, result)
    assert found_ops == ops
    assert same(value, kept)


@pytest.mark.parametrize(
    "edit",
    [
        lambda root: None,
        lambda root: root["l"].sort(),
        _set("n", to=1),
        lambda root: (_set("n", to=2)(root), _set("n", to=1)(root)),
        lambda root: (root["l"].append(3), root["l"].pop()),
        lambda root: root.update(d={"x": {}}),
        lambda root: plain(root)["l"].append(3),
    ],
)
def test_nothing_changed_in_the_end_means_no_operations(edit: Edit) -> None:
    value = {"n": 1, "l": [1, 2], "d": {"x": {}}}
    result, ops = _edited(value, edit)
    assert ops == []
    assert result is value


_edits = st.lists(
    st.tuples(
        st.sampled_from(
            ["set", "del", "append", "insert", "pop", "extend", "reverse", "grow", "update", "move", "clear"]
        ),
        st.lists(st.integers(0, 5), max_size=3),
        keys,
        values,
    ),
    max_size=8,
)


def _edit_at(root: Any, kind: str, way: list[int], key: str, value: Any) -> None:
    for turn in way:
        inner = list(root.values() if hasattr(root, "keys") else root)
        found = [item for item in inner if isinstance(item, dict | list) or is_draft(item)]
        if not found:
            break
        root = found[turn % len(found)]
    if hasattr(root, "keys"):
        _edit_dict(root, kind, key, value)
    else:
        _edit_list(root, kind, value)


def _edit_dict(root: Any, kind: str, key: str, value: Any) -> None:
    some = next(iter(root.keys()), key)
    if kind == "del" and root:
        del root[some]
    elif kind == "pop":
        root.pop(some, None)
    elif kind == "update":
        root.update({key: value, some: value})
    elif kind == "grow" and isinstance(root.get(some), str):
        root[some] += key
    elif kind == "move" and root:
        root[key] = root.pop(some)
    elif kind == "clear":
        root.clear()
    elif kind == "insert":
        root.setdefault(key, value)
    else:
        root[key] = value


def _edit_list(root: Any, kind: str, value: Any) -> None:
    if kind == "del" and len(root):
        del root[-1]
    elif kind == "pop" and len(root):
        root.pop(0)
    elif kind == "insert":
        root.insert(1, value)
    elif kind == "extend":
        root.extend([value, value])
    elif kind == "reverse":
        root.reverse()
    elif kind == "grow" and len(root) and isinstance(root[0], str):
        root[0] += "more"
    elif kind == "set" and len(root):
        root[len(root) - 1] = value
    elif kind == "update":
        root[0:1] = [value]
    elif kind == "move" and len(root):
        root.append(root.pop(0))
    elif kind == "clear":
        root.clear()
    else:
        root.append(value)


@given(containers, _edits)
def test_a_draft_is_edited_like_the_value_itself_and_its_operations_lead_to_the_same(value: Any, edits: Any) -> None:
    expected, kept = copy.deepcopy(value), copy.deepcopy(value)
    draft = Draft(value)
    for kind, way, key, item in edits:
        _edit_at(expected, kind, way, key, copy.deepcopy(item))
        _edit_at(draft.root, kind, way, key, copy.deepcopy(item))
    assert same(plain(draft.root), expected)
    result, ops = draft.finish()
    assert same(result, expected)
    assert same(apply(value, ops), expected)
    assert same(value, kept)


@pytest.mark.parametrize("bad", [{1}, float("nan"), b"", (1,), {1: 2}, {"a": [object()]}, "\ud800", 2**60])
def test_what_is_not_json_is_refused_at_the_assignment_with_its_path(bad: Any) -> None:
    edits: list[Edit] = [
        _set("d", "x", to=bad),
        lambda root: root["d"].update(x=bad),
        lambda root: root["d"].setdefault("x", bad),
        lambda root: root["l"].append(bad),
        lambda root: root["l"].insert(0, bad),
        _set("l", 0, to=bad),
        lambda root: root["l"].extend([5, bad]),
        lambda root: operator.setitem(root["l"], slice(0, 1), [bad]),
    ]
    for edit in edits:
        with pytest.raises(InvalidValue) as caught:
            _edited({"d": {}, "l": [1]}, edit)
        assert caught.value.path.startswith(("/d/x", "/l/-", "/l/0"))


def test_a_key_that_is_no_text_is_refused() -> None:
    for key in (1, None, ("a",)):
        with pytest.raises(InvalidValue, match="a key that is no text"):
            _edited({}, _set(key, to=1))


def test_an_edit_that_failed_halfway_and_was_caught_leaves_a_value_that_its_operations_reach() -> None:
    value = {"l": [1], "t": "x" * 100}
    draft = Draft(value)
    with pytest.raises(InvalidValue):
        draft.root["l"].extend([2, {3}])
    draft.root["n"] = 1
    result, ops = draft.finish()
    assert same(apply(value, ops), result)
    assert result["n"] == 1


def test_objects_that_the_caller_holds_are_not_in_the_value() -> None:
    mine: dict[str, Any] = {"inner": [1]}
    value = {"t": "x" * 200}
    draft = Draft(value)
    draft.root["mine"] = mine
    mine["inner"].append(2)  # as with a plain dict: it was put in, not copied
    result, ops = draft.finish()
    assert result["mine"] == {"inner": [1, 2]}
    assert same(apply(value, ops), result)
    mine["inner"].append(3)
    assert result["mine"] == {"inner": [1, 2]}


def test_what_was_taken_out_and_put_elsewhere_is_recorded_and_not_shared() -> None:
    value = {"a": {"x": [1]}, "t": "x" * 200}
    draft = Draft(value)
    taken = draft.root.pop("a")
    draft.root["b"] = [taken, taken]
    result, ops = draft.finish()
    taken["x"].append(2)
    assert result["b"] == [{"x": [1]}, {"x": [1]}]
    assert same(apply(value, ops), result)


def test_unchanged_parts_are_shared_with_the_original() -> None:
    value = {"a": {"x": [1]}, "n": 1}
    result, _ = _edited(value, _set("n", to=2))
    assert result["a"] is value["a"]


USES: list[Edit] = [
    lambda root: root["l"],
    lambda root: root.get("l"),
    lambda root: operator.setitem(root, "x", 1),
    lambda root: operator.delitem(root, "l"),
    list,
    len,
    bool,
    repr,
    str,
    lambda root: root.keys(),
    lambda root: list(root.items()),
    lambda root: root.update(a=1),
    lambda root: root.pop("l", None),
    lambda root: root == {},
    lambda root: "l" in root,
    lambda root: root.copy(),
    plain,
]


@pytest.mark.parametrize("finished", [Draft.finish, Draft.revoke])
def test_every_use_of_a_finished_draft_raises(finished: Callable[[Draft], object]) -> None:
    draft = Draft({"l": [{"x": 1}], "gone": {"y": []}})
    root, part, deep, gone = draft.root, draft.root["l"], draft.root["l"][0], draft.root["gone"]
    del root["gone"]
    finished(draft)
    for use in USES:
        with pytest.raises(InvocationEnded):
            use(root)
    for use in (len, list, repr, lambda part: part.append(1), lambda part: part[0]):
        with pytest.raises(InvocationEnded):
            use(part)
    with pytest.raises(InvocationEnded):
        deep["x"] = 2
    with pytest.raises(InvocationEnded):
        gone["y"] = 2
    with pytest.raises(InvocationEnded):
        draft.finish()


def test_plain_detaches_drafts_wherever_they_stand() -> None:
    draft = Draft({"l": [{"x": 1}]})
    value = plain({"part": draft.root["l"], "list": [draft.root]})
    draft.root["l"][0]["x"] = 2
    assert value == {"part": [{"x": 1}], "list": [{"l": [{"x": 1}]}]}
    assert not is_draft(value)
    assert is_draft(draft.root["l"])


def test_a_frozen_value_has_drafts_like_any_other() -> None:
    value = frozen({"l": [{"x": 1}], "t": "a"})
    result, ops = _edited(value, _set("l", 0, "x", to=2), lambda root: root.update(copy=value["l"]))
    assert result["l"] == [{"x": 2}]
    assert same(apply(value, ops), result)


def test_many_edits_that_a_comparison_tells_shorter_are_recorded_as_that() -> None:
    value = {"l": list(range(200)), "t": "x" * 50}

    def edit(root: Any) -> None:
        for n in range(200):
            root["l"][n] = -1
        for n in range(199):
            root["l"][n] = n

    result, ops = _edited(value, edit)
    assert result["l"] == [*range(199), -1]
    assert ops == [{"op": "replace", "path": "/l/199", "value": -1}]
