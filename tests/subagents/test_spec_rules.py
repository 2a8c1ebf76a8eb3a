"""Specs, labels, names, digests and schemas: strict, and all that is wrong at once."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidValue
from perdure.subagents.digest import request_digest
from perdure.subagents.model_names import parse_model
from perdure.subagents.names import check_request_id, new_workflow_id, parse_address
from perdure.subagents.paths import StateRoot, encoded
from perdure.subagents.pins import PinFailed, pin, pin_file, pinned
from perdure.subagents.schema import check_schema, check_value
from perdure.subagents.spec import check_call, check_labels, fingerprint, parse_run, with_previous

GOOD = {"agent": "worker", "task": "x"}


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"isolaton": "none"}, "isolaton: no such field"),
        ({"agent": " "}, "agent: a text that is not blank"),
        ({"task": 7}, "task: a text that is not blank, not 7"),
        ({"timeoutMs": 0}, "timeoutMs: a number above 0, not 0"),
        ({"timeoutMs": float("inf")}, "inf is no JSON number at /timeoutMs"),
        ({"timeoutMs": True}, "timeoutMs: a number above 0, not True"),
        ({"once": "yes"}, "once: true or false, not 'yes'"),
        ({"tools": "read"}, "tools: a list of names"),
        ({"skills": [1]}, "skills: a list of names"),
        ({"context": "shared"}, "context: one of fresh, fork"),
        ({"isolation": "worktree"}, 'isolation: "worktree" is not available yet: make the worktree before'),
        ({"context": "fork"}, 'context: "fork" is not available yet: put what it has to know into the task'),
        ({"writer": True}, "writer: true is not available yet: leave it out"),
        ({"budget": {}}, "budget: tokens, costUsd or both"),
        ({"budget": {"tokens": -1}}, "budget: tokens: a number above 0"),
        ({"budget": {"euros": 1}}, "budget: euros: no such limit"),
        ({"gate": ""}, "gate: a text that is not blank"),
        ({"gate": {"command": "x", "when": 1}}, "gate: when: no such field"),
        ({"gate": {"command": "x", "schema": {"pattern": "a"}}}, "gate: /schema/pattern: this keyword is not enforced"),
        ({"schema": {"type": "text"}}, "schema: /type: no such type"),
        ({"model": "two words/x"}, "model: not a model"),
        ({"model": None}, "model: null says nothing"),
    ],
)
def test_r080_r081_each_bad_field_is_named_with_what_was_given(spec: dict[str, Any], word: str) -> None:
    problems = check_call({**GOOD, **spec})
    assert any(word in problem for problem in problems), problems


def test_r082_all_problems_of_a_spec_are_told_together() -> None:
    assert len(check_call({"agent": "", "task": "", "timeoutMs": -1, "nope": 1})) == 4
    with pytest.raises(InvalidValue) as raised:
        parse_run({"tasks": [{"agent": "", "task": "x"}, {"agent": "a", "task": "x", "once": 1}]}, "/")
    assert "tasks[0]: agent" in str(raised.value)
    assert "tasks[1]: once" in str(raised.value)


FORMS: dict[str, dict[str, Any]] = {
    "single": {"agent": "a", "task": "x"}, "tasks": {"tasks": [GOOD]}, "chain": {"chain": [GOOD]},
    "workflow": {"workflow": "f.py"}, "source": {"source": "return 1"},
}  # fmt: skip


@pytest.mark.parametrize("one", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_r050_exactly_one_form_of_a_run(one: str, other: str) -> None:
    body = {**FORMS[one], **FORMS[other]}
    if one == other:
        assert parse_run(body, "/").form == {"workflow": "script", "source": "script"}.get(one, one)
        return
    with pytest.raises(InvalidValue):
        parse_run(body, "/")


def test_r050_no_form_names_the_choices() -> None:
    with pytest.raises(InvalidValue, match="agent with task, tasks, chain, workflow"):
        parse_run({"name": "x"}, "/")


def test_r054_the_previous_output_is_put_in_as_it_is_everywhere() -> None:
    assert with_previous("a {previous} b {previous}", "$& {previous} \\1") == "a $& {previous} \\1 b $& {previous} \\1"


def test_r056_keys_by_default_and_duplicates() -> None:
    steps = [GOOD, {**GOOD, "key": "mine"}, GOOD]
    assert [step["key"] for step in parse_run({"tasks": steps}, "/").steps] == ["tasks:0", "mine", "tasks:2"]
    with pytest.raises(InvalidValue, match="given twice"):
        parse_run({"chain": [{**GOOD, "key": "k"}, {**GOOD, "key": "k"}]}, "/")


def test_r057_a_list_has_defaults_for_its_steps_and_nothing_else_beside_it() -> None:
    launch = parse_run(
        {"tasks": [{"task": "x"}, {"task": "y", "model": "a/b"}], "agent": "worker", "model": "c/d"}, "/"
    )
    assert [(step["agent"], step["model"]) for step in launch.steps] == [("worker", "c/d"), ("worker", "a/b")]
    for body, word in (
        ({"tasks": [GOOD], "task": "z"}, "task: it goes into the steps of tasks"),
        ({"tasks": [GOOD], "output": "f"}, "output: not with tasks"),
        ({"source": "return 1", "once": True}, "once: not with source"),
        ({"tasks": [GOOD], "args": 1}, "args: not with tasks"),
    ):
        with pytest.raises(InvalidValue, match=word):
            parse_run(body, "/")


def test_r058_a_runs_folder_counts_from_the_requests(tmp_path: Path) -> None:
    assert parse_run({**GOOD, "cwd": "sub"}, str(tmp_path)).cwd == str(tmp_path / "sub")


def test_r064_the_fingerprint_is_that_of_spec_and_agent_in_any_order_of_keys() -> None:
    agent = {"name": "worker", "prompt": "P"}
    assert fingerprint({"task": "x", "agent": "w", "key": "k"}, agent) == fingerprint(
        {"agent": "w", "task": "x"}, agent
    )
    assert fingerprint({"task": "x"}, agent) != fingerprint({"task": "y"}, agent)
    assert fingerprint({"task": "x"}, agent) != fingerprint({"task": "x"}, {**agent, "prompt": "Q"})


@pytest.mark.parametrize(
    ("text", "provider", "id", "thinking"),
    [
        ("ollama/qwen:7b", "ollama", "qwen:7b", None),
        ("hf/owner/name:high", "hf", "owner/name", "high"),
        ("openai:gpt-5", "openai", "gpt-5", None),
        ("a/b:off", "a", "b", "off"),
        ("a/b:turbo", "a", "b:turbo", None),
    ],
)
def test_r086_b147_model_names(text: str, provider: str, id: str, thinking: str | None) -> None:
    found = parse_model(text)
    assert (found.provider, found.id, found.thinking, found.name) == (provider, id, thinking, f"{provider}:{id}")


@pytest.mark.parametrize("text", ["", "noslash", "/x", "a/", "a b/c", "a/:high", None, 7])
def test_r086_bad_model_names(text: Any) -> None:
    with pytest.raises(InvalidValue):
        parse_model(text)


@pytest.mark.parametrize(
    "body",
    [
        {"usageBudget": {}},
        {"usageBudget": {"tokens": 0}},
        {"inputs": {"..": "x"}},
        {"inputs": {"a" * 201: "x"}},
        {"maxCalls": 0},
    ],
)
def test_r087_r068_limits_of_a_run(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        parse_run({"source": "return 1", **body}, "/")


@pytest.mark.parametrize("keyword", ["pattern", "minimum", "oneOf", "$ref", "maxLength", "format"])
def test_r085_a_keyword_that_is_not_enforced_is_refused_with_its_path(keyword: str) -> None:
    (problem,) = check_schema({"type": "object", "properties": {"a": {keyword: 1}}})
    assert problem.startswith(f"/properties/a/{keyword}:")


@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        ({"type": "integer"}, "1", "/:"),
        ({"type": "integer"}, True, "/:"),
        ({"type": ["string", "null"]}, 1, "/:"),
        ({"enum": ["a", 1]}, True, "/:"),
        ({"type": "object", "required": ["a"]}, {}, "/a: is missing"),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"b": 1}, "/b: is not known"),
        ({"items": {"type": "string"}}, ["a", 2], "/1:"),
        ({"properties": {"a": {"items": {"type": "number"}}}}, {"a": [1, "x"]}, "/a/1:"),
        (False, 1, "/:"),
    ],
)
def test_r310_values_that_break_a_schema_are_named_by_their_paths(schema: Any, value: Any, path: str) -> None:
    assert any(problem.startswith(path) for problem in check_value(schema, value))


def test_r310_values_that_fit() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "number"}, "s": {"type": ["string", "null"]}},
        "required": ["n"],
    }
    assert check_value(schema, {"n": 1.5, "s": None, "more": [1]}) == []
    assert check_value({"type": "integer"}, 2.0) == []


@pytest.mark.parametrize(
    "labels",
    [
        {"a b": "x"}, {"": "x"}, {"a" * 65: "x"}, {"a": 1}, {"a": "x" * 257}, {str(n): "x" for n in range(33)}, ["a"],
        {f"k{n}": "x" * 250 for n in range(20)},
    ],
)  # fmt: skip
def test_r380_labels_out_of_bounds(labels: Any) -> None:
    with pytest.raises(InvalidValue, match="invalid-labels"):
        check_labels(labels)


def test_r380_labels_in_bounds() -> None:
    assert check_labels({"A-z_0.:": "ü" * 256}) == {"A-z_0.:": "ü" * 256}


@pytest.mark.parametrize("good", ["a", "9", "a._:-Z", "x" * 124])
def test_r440_request_ids(good: str) -> None:
    assert check_request_id(good) == good


@pytest.mark.parametrize("bad", ["", "-a", ".a", "a b", "a/b", "ä", "x" * 125, "a\n", None])
def test_r440_bad_request_ids(bad: Any) -> None:
    with pytest.raises(InvalidValue):
        check_request_id(bad)


def test_r442_the_digest_is_that_of_the_content_alone() -> None:
    assert request_digest("run", {"a": 1, "b": 2}, []) == request_digest("run", {"b": 2, "a": 1}, [])
    different = [("stop", {"a": 1}, []), ("run", {"a": 2}, []), ("run", {"a": 1}, ["x"]), ("run", {"a": 1}, [])]
    assert len({request_digest(kind, body, targets) for kind, body, targets in different}) == 4


@pytest.mark.parametrize("key", ["../x", "..", ".", "a/b", "a\0b", " ", "x" * 500, "ä" * 100, "-rf", "%2e"])
def test_r323_b130_a_key_is_one_part_of_a_path_and_escapes_nowhere(key: str) -> None:
    name = encoded(key)
    assert "/" not in name
    assert "\0" not in name
    assert name not in ("", ".", "..")
    assert len(name.encode()) < 255


def test_b130_no_two_keys_meet() -> None:
    keys = ["a/b", "a%2Fb", "a b", "a+b", "x" * 200, "x" * 201, ".", "%2E", "A", "a"]
    assert len({encoded(key) for key in keys}) == len(keys)


def test_workflow_ids_sort_by_time() -> None:
    ids = [new_workflow_id(1_700_000_000 + n / 1000) for n in range(50)]
    assert ids == sorted(ids)
    assert len({new_workflow_id(1.0) for _ in range(1000)}) == 1000


def test_r102_addresses() -> None:
    assert parse_address("w/tasks:0@3") == ("w", "tasks:0", None, 3)
    assert parse_address("w@2/a") == ("w", "a", 2, None)
    assert parse_address("w") == ("w", None, None, None)
    with pytest.raises(InvalidValue):
        parse_address("")


def test_r062_r072_pins_keep_bytes_once_and_a_missing_file_rejects(tmp_path: Path) -> None:
    root = StateRoot(tmp_path / "home")
    script = tmp_path / "flow.py"
    script.write_text("return 1")
    digest = pin_file(root, script)
    assert pin(root, b"return 1") == digest
    script.write_text("return 2")
    assert pinned(root, digest) == b"return 1"
    assert len(list(root.pins.iterdir())) == 1
    with pytest.raises(PinFailed, match="pin-failed"):
        pin_file(root, tmp_path / "nosuch.py")


TWO_AND_MORE = [names for count in (2, 3, 4, 5) for names in itertools.combinations(FORMS, count)]


@pytest.mark.parametrize("names", [(), *TWO_AND_MORE], ids="+".join)
def test_r050_none_of_the_other_combinations_of_forms_is_a_run(names: tuple[str, ...]) -> None:
    body = {field: value for name in names for field, value in FORMS[name].items()}
    with pytest.raises(InvalidValue):
        parse_run(body, "/")


def test_b056_whatever_would_be_ignored_is_refused_and_named() -> None:
    for body, word in (
        ({**GOOD, "args": {}}, "args: not with single"),
        ({**GOOD, "inputs": {}}, "inputs: not with single"),
        ({"chain": [GOOD], "schema": {}}, "schema: not with chain"),
        ({"chain": [GOOD], "gate": "x"}, "gate: not with chain"),
        ({"tasks": [GOOD], "key": "k"}, "key: not with tasks"),
        ({"workflow": "f.py", "agent": "a"}, "agent: not with workflow"),
        ({"workflow": "f.py", "key": "k"}, "key: not with workflow"),
        ({**GOOD, "taks": "x"}, "taks: no such field"),
    ):
        with pytest.raises(InvalidValue, match=word):
            parse_run(body, "/")


def test_b071_braces_and_dollars_of_an_output_mean_nothing() -> None:
    assert with_previous("{previous}{previous}", "{previous}") == "{previous}{previous}"
    assert with_previous("{ previous } {Previous}", "x") == "{ previous } {Previous}"


def test_b149_a_list_with_nothing_but_a_tool_of_the_protocol_is_fine() -> None:
    assert check_call({**GOOD, "tools": ["ask"]}) == []
    assert check_call({**GOOD, "tools": []}) == []


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"model": "fast"}, "model: 'fast' names no provider; pools of models are not available yet"),
        ({"schema": True}, "schema: /: an object, not True"),
        ({"schema": {"type": []}}, "schema: /type: a type"),
        ({"schema": {"type": None}}, "schema: /type: no such type: None"),
        ({"schema": {"properties": {"a/b": {"format": "x"}}}}, "/properties/a~1b/format: this keyword"),
        ({"schema": {"items": [{"type": "string"}]}}, "schema: /items: a schema is an object"),
        ({"gate": {"command": "x", "schema": [1]}}, "gate: /schema: an object"),
        ({"cwd": "a\0b"}, "cwd: a path has no null character"),
        ({"output": 5}, "output: a text"),
        ({"task": "\ud800"}, "half a surrogate pair at /task"),
        ({"timeoutMs": 10**400}, "/timeoutMs"),
    ],
)
def test_r081_r085_values_that_look_right_and_are_not(spec: dict[str, Any], word: str) -> None:
    problems = check_call({**GOOD, **spec})
    assert any(word in problem for problem in problems), problems


def test_r085_schemas_that_are_nested_without_end_are_refused_and_not_followed() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"items": schema}
    (problem,) = check_call({**GOOD, "schema": schema})
    assert "nested deeper" in problem


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": [1]}, [True]),
        ({"enum": [{"a": [0]}]}, {"a": [False]}),
        ({"const": {"a": 1}}, {"a": 1, "b": 2}),
        ({"type": "number"}, False),
        ({"type": "integer"}, 1.5),
        ({"type": "null"}, 0),
    ],
)
def test_r310_true_is_not_one_however_deep(schema: Any, value: Any) -> None:
    assert check_value(schema, value)


def test_r310_numbers_are_compared_by_value() -> None:
    assert check_value({"enum": [{"a": [1]}]}, {"a": [1.0]}) == []


def test_r058_the_run_s_folder_is_a_text() -> None:
    with pytest.raises(InvalidValue, match="cwd: a text"):
        parse_run({**GOOD, "cwd": 5}, "/")


def test_r442_the_folder_is_part_of_the_content() -> None:
    here, there = ({**GOOD, "cwd": folder} for folder in ("/a", "/b"))
    assert request_digest("run", here, []) != request_digest("run", there, [])
