"""Patches: what they do, what they leave alone, and that differences lead where they should."""

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.base.delta import Operation, apply, diff, root_replacement, same, value_at
from perdure.base.errors import InvalidValue
from tests.base.values import containers, values


@given(values, values)
@example({"a": True}, {"a": 1})
@example([1, True, 1.0], [True, 1.0, 1])
@example({"t": "ab"}, {"t": "abc"})
@example("a", "ab")
@example([{"a": 1}, {"b": 2}], [{"b": 2}, {"a": 1}])
@example([""], ["x"])
def test_a_difference_leads_from_one_value_to_the_other_and_changes_neither(old: Any, new: Any) -> None:
    kept_old, kept_new = copy.deepcopy(old), copy.deepcopy(new)
    ops = diff(old, new)
    kept_ops = copy.deepcopy(ops)
    result = apply(old, ops)
    assert same(result, new)
    assert same(old, kept_old)
    assert same(new, kept_new)
    assert same(ops, kept_ops)
    assert (ops == []) == same(old, new)


@given(containers, st.data())
def test_a_difference_inside_a_document_applies_at_its_place(inner: Any, data: st.DataObject) -> None:
    new = data.draw(containers)
    document = {"a/b": [0, inner]}
    assert same(apply(document, diff(inner, new, path="/a~1b/1")), {"a/b": [0, new]})


def test_only_changed_containers_are_copied_and_each_once() -> None:
    value: Any = {"a": {"b": [1, 2], "c": {"d": 1}}, "e": [{"f": 1}]}
    result = apply(
        value, [{"op": "add", "path": "/a/b/-", "value": 3}, {"op": "replace", "path": "/a/b/0", "value": 9}]
    )
    assert result == {"a": {"b": [9, 2, 3], "c": {"d": 1}}, "e": [{"f": 1}]}
    assert value == {"a": {"b": [1, 2], "c": {"d": 1}}, "e": [{"f": 1}]}
    assert result["e"] is value["e"]
    assert result["a"]["c"] is value["a"]["c"]


def test_the_values_of_operations_are_never_changed() -> None:
    ops: list[Operation] = [
        {"op": "add", "path": "/a", "value": {"b": [1]}},
        {"op": "add", "path": "/a/b/-", "value": 2},
        {"op": "replace", "path": "", "value": {"x": []}},
        {"op": "add", "path": "/x/-", "value": 3},
    ]
    kept = copy.deepcopy(ops)
    assert apply({}, ops) == {"x": [3]}
    assert ops == kept


def test_a_copied_value_and_its_source_change_apart() -> None:
    ops: list[Operation] = [
        {"op": "add", "path": "/a/-", "value": 1},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/-", "value": 2},
        {"op": "add", "path": "/b/-", "value": 3},
    ]
    assert apply({"a": []}, ops) == {"a": [1, 2], "b": [1, 3]}


CASES: list[tuple[Any, Operation, Any]] = [
    ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
    ({"a": 1}, {"op": "add", "path": "/a", "value": 2}, {"a": 2}),
    ([1, 3], {"op": "add", "path": "/1", "value": 2}, [1, 2, 3]),
    ([1], {"op": "add", "path": "/1", "value": 2}, [1, 2]),
    ([1], {"op": "add", "path": "/-", "value": 2}, [1, 2]),
    ({"": {"~/": 1}}, {"op": "remove", "path": "//~0~1"}, {"": {}}),
    ({"a": ["x"]}, {"op": "append", "path": "/a/0", "value": "y"}, {"a": ["xy"]}),
    ({"a": "x"}, {"op": "append", "path": "/a", "value": "y"}, {"a": "xy"}),
    ("x", {"op": "append", "path": "", "value": "y"}, "xy"),
    ({"a": 1}, root_replacement([1])[0], [1]),
    ({"a": 1, "b": {}}, {"op": "move", "from": "/a", "path": "/b/c"}, {"b": {"c": 1}}),
    ([1, 2, 3], {"op": "move", "from": "/0", "path": "/2"}, [2, 3, 1]),
    ({"a": 1}, {"op": "move", "from": "/a", "path": "/a"}, {"a": 1}),
    ({"a": 1}, {"op": "test", "path": "/a", "value": 1}, {"a": 1}),
    ({"0": 1}, {"op": "replace", "path": "/0", "value": 2}, {"0": 2}),
]


@pytest.mark.parametrize(("value", "op", "result"), CASES)
def test_operations_do_what_the_standard_says(value: Any, op: Operation, result: Any) -> None:
    kept = copy.deepcopy(value)
    assert apply(value, [op]) == result
    assert value == kept


WRONG: list[Operation] = [
    {"op": "remove", "path": "/x"},
    {"op": "replace", "path": "/x", "value": 1},
    {"op": "append", "path": "/x", "value": "1"},
    {"op": "append", "path": "/n", "value": "1"},
    {"op": "append", "path": "/t", "value": 1},
    {"op": "append", "path": "", "value": "1"},
    {"op": "remove", "path": ""},
    {"op": "add", "path": "/x/y", "value": 1},
    {"op": "add", "path": "/n/y", "value": 1},
    {"op": "add", "path": "/l/4", "value": 1},
    {"op": "add", "path": "/l/01", "value": 1},
    {"op": "add", "path": "/l/-1", "value": 1},
    {"op": "add", "path": "/l/²", "value": 1},
    {"op": "add", "path": "/l/" + "9" * 5000, "value": 1},
    {"op": "replace", "path": "/l/3", "value": 1},
    {"op": "replace", "path": "/l/-", "value": 1},
    {"op": "remove", "path": "/l/x"},
    {"op": "remove", "path": "l"},
    {"op": "add", "path": None, "value": 1},
    {"op": "add", "path": "/x"},
    {"path": "/x", "value": 1},
    {"op": "frob", "path": "/n", "value": 1},
    {"op": "frob", "path": "/l/0", "value": 1},
    {"op": "frob", "path": "", "value": 1},
    {"op": "test", "path": "/n", "value": True},
    {"op": "test", "path": "", "value": {}},
    {"op": "move", "from": "/l", "path": "/l/0"},
    {"op": "move", "from": "/x", "path": "/y"},
    {"op": "copy", "path": "/y"},
]


@pytest.mark.parametrize("op", WRONG, ids=str)
def test_operations_that_lead_nowhere_are_refused_and_nothing_happens(op: Operation) -> None:
    value = {"n": 1, "t": "x", "l": [1, 2, 3]}
    with pytest.raises(InvalidValue):
        apply(value, [{"op": "add", "path": "/l/-", "value": 4}, {"op": "remove", "path": "/l/3"}, op])
    assert value == {"n": 1, "t": "x", "l": [1, 2, 3]}


def test_a_difference_is_as_small_as_the_change() -> None:
    big: list[dict[str, Any]] = [{"id": i, "text": "word " * 5} for i in range(50)]
    new = copy.deepcopy(big)
    del new[3]
    new[10]["text"] += "more"
    new.insert(30, {"id": 99})
    assert diff({"l": big}, {"l": new}) == [
        {"op": "remove", "path": "/l/3"},
        {"op": "append", "path": "/l/10/text", "value": "more"},
        {"op": "add", "path": "/l/30", "value": {"id": 99}},
    ]


def test_a_difference_larger_than_the_value_is_one_replacement() -> None:
    old = {f"key{i}": i for i in range(20)}
    assert diff(old, {}) == root_replacement({})
    assert diff({"deep": old}["deep"], {}, path="/deep") == [{"op": "replace", "path": "/deep", "value": {}}]


@pytest.mark.parametrize("size", [40, 3000])
def test_large_lists_are_compared_in_bounded_time(size: int) -> None:
    old = list(range(size))
    for new in (old[::-1], old[1:-1], [-n for n in old], [0, *old, 0], old[5:] + old[:5], [*old[1:], -1, -2, -3]):
        assert apply({"l": old}, diff({"l": old}, {"l": new})) == {"l": new}
    changed: list[dict[str, Any]] = [{"n": n, "text": "some text"} for n in old]
    ops = diff(changed, [{**item, "n": -1} if item["n"] % (size // 2) == 1 else item for item in changed])
    assert [op["path"] for op in ops] == ["/1/n", f"/{size // 2 + 1}/n"]


def test_added_keys_come_in_the_order_of_the_new_value() -> None:
    new = {"z": 1, "a": 2, "m": 3, "b": "x" * 100}
    assert list(apply({"b": "x" * 100}, diff({"b": "x" * 100}, new))) == ["b", "z", "a", "m"]


def test_a_difference_shares_nothing_with_the_new_value() -> None:
    inner = [1]
    ops = diff({"b": 1}, {"a": inner, "b": 1})
    inner.append(2)
    assert ops == [{"op": "add", "path": "/a", "value": [1]}]


def test_a_pointer_finds_what_stands_there() -> None:
    value = {"a/b": [{"~": 1}]}
    assert value_at(value, "") is value
    assert value_at(value, "/a~1b/0/~0") == 1
    for wrong in ("/x", "/a~1b/1", "/a~1b/-", "/a~1b/0/~0/x", "a"):
        with pytest.raises(InvalidValue):
            value_at(value, wrong)
