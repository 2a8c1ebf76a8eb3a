"""Specs of calls and of runs, strictly: an unknown field is an error, and all that is wrong is told at once."""

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from perdure import InvalidValue
from perdure.base import jsonvalue
from perdure.subagents.digest import canonical_digest
from perdure.subagents.model_names import parse_model
from perdure.subagents.schema import check_schema

CALL_FIELDS: Final = (
    "agent", "task", "model", "cwd", "timeoutMs", "output", "schema", "gate", "isolation", "context", "budget", "once",
    "tools", "skills", "writer",
)  # fmt: skip
LIST_DEFAULTS: Final = (
    "agent", "model", "timeoutMs", "budget", "isolation", "context", "tools", "skills", "once", "writer",
)  # fmt: skip
"""What a run with a list may say for the steps that do not say it themselves."""
RUN_FIELDS: Final = (
    "tasks",
    "chain",
    "workflow",
    "source",
    "language",
    "args",
    "inputs",
    "usageBudget",
    "maxCalls",
    "name",
    "key",
)
FORMS: Final = "give one of: agent with task, tasks, chain, workflow (a file), source"
LONGEST_KEY: Final = 200
LABELS: Final = 32
LABEL_BYTES: Final = 4096
NOT_YET: Final[dict[str, tuple[Any, str]]] = {
    "isolation": ("worktree", "make the worktree before, and name it as cwd"),
    "context": ("fork", "put what it has to know into the task"),
    "writer": (True, "leave it out; let those that edit the same files run in a chain, or each in a cwd of its own"),
}
"""Values that are part of the form and are not available yet, and what to do instead."""
NO_POOLS: Final = "pools of models are not available yet; name one model, as provider/id"

Form = Literal["single", "tasks", "chain", "script"]


class Launch(msgspec.Struct, kw_only=True):
    """A run, checked: its form, its calls where they are known before, and what the workflow gets."""

    form: Form
    cwd: str
    steps: list[dict[str, Any]] = []
    """Specs of calls, each with its `key`."""
    workflow: str | None = None
    source: str | None = None
    language: Literal["python", "javascript"] = "python"
    args: Any = None
    inputs: dict[str, str] = {}
    name: str | None = None
    budget: dict[str, float] = {}
    max_calls: int | None = None


def check_call(spec: Any, *, step: bool = False) -> list[str]:
    """All that is wrong with the spec of a call, each naming the field and what was given."""
    if not isinstance(spec, dict):
        return [f"a spec is an object, not {_shown(spec)}"]
    try:
        jsonvalue.check(spec)
    except InvalidValue as error:
        return [str(error)]
    allowed = (*CALL_FIELDS, "key") if step else CALL_FIELDS
    problems = [f"{name}: no such field" for name in spec if name not in allowed]
    for name in ("agent", "task"):
        value = spec.get(name)
        if not isinstance(value, str) or not value.strip():
            problems.append(f"{name}: a text that is not blank, not {_shown(value)}")
    for name, check in _CHECKS.items():
        if spec.get(name) is not None:
            problems += [f"{name}: {problem}" for problem in check(spec[name])]
        elif name in spec:
            problems.append(f"{name}: null says nothing; leave it out")
    for name, (value, instead) in NOT_YET.items():
        if type(spec.get(name)) is type(value) and spec[name] == value:
            problems.append(f"{name}: {json.dumps(value)} is not available yet: {instead}")
    return problems


def _text(value: Any) -> list[str]:
    return [] if isinstance(value, str) and value.strip() else [f"a text that is not blank, not {_shown(value)}"]


def _path(value: Any) -> list[str]:
    return _text(value) or (["a path has no null character"] if "\0" in value else [])


def _model(value: Any) -> list[str]:
    if isinstance(value, str) and value.strip() and not any(mark in value for mark in "/: \t\n"):
        return [f"{_shown(value)} names no provider; {NO_POOLS}"]
    try:
        parse_model(value)
    except InvalidValue as error:
        return [str(error)]
    return []


def _positive(value: Any) -> list[str]:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
    return [] if fine else [f"a number above 0, not {_shown(value)}"]


def _flag(value: Any) -> list[str]:
    return [] if isinstance(value, bool) else [f"true or false, not {_shown(value)}"]


def _names(value: Any) -> list[str]:
    fine = isinstance(value, list) and all(isinstance(one, str) and one.strip() for one in value)
    return [] if fine else [f"a list of names, not {_shown(value)}"]


def _one_of(*values: str) -> Any:
    return lambda value: [] if value in values else [f"one of {', '.join(values)}, not {_shown(value)}"]


def _budget(value: Any) -> list[str]:
    if not isinstance(value, dict) or not value:
        return [f"tokens, costUsd or both, not {_shown(value)}"]
    problems = [f"{name}: no such limit" for name in value if name not in ("tokens", "costUsd")]
    for name in ("tokens", "costUsd"):
        if name in value:
            problems += [f"{name}: {problem}" for problem in _positive(value[name])]
    return problems


def _schema(value: Any, path: str = "") -> list[str]:
    return check_schema(value, path) if isinstance(value, dict) else [f"{path or '/'}: an object, not {_shown(value)}"]


def _gate(value: Any) -> list[str]:
    if isinstance(value, str):
        return _text(value)
    if not isinstance(value, dict):
        return [f"a command, or an object with one, not {_shown(value)}"]
    problems = [f"{name}: no such field" for name in value if name not in ("command", "output", "schema", "timeoutMs")]
    problems += [f"command: {problem}" for problem in _text(value.get("command"))]
    if value.get("output", "json") != "json":
        problems.append(f"output: json, not {_shown(value['output'])}")
    if "schema" in value:
        problems += _schema(value["schema"], "/schema")
    if "timeoutMs" in value:
        problems += [f"timeoutMs: {problem}" for problem in _positive(value["timeoutMs"])]
    return problems


_CHECKS: Final[dict[str, Any]] = {
    "model": _model, "cwd": _path, "timeoutMs": _positive, "output": _path, "schema": _schema, "gate": _gate,
    "isolation": _one_of("none", "worktree"), "context": _one_of("fresh", "fork"), "budget": _budget, "once": _flag,
    "tools": _names, "skills": _names, "writer": _flag,
}  # fmt: skip


def check_key(key: Any) -> list[str]:
    """What is wrong with the key of a call."""
    if not isinstance(key, str) or not key.strip() or len(key) > LONGEST_KEY or not jsonvalue.is_strict(key):
        return [f"key: 1 to {LONGEST_KEY} characters, not {_shown(key)}"]
    if "@" in key or any(ord(character) < 32 for character in key):
        return [f"key: no @ and no control characters, not {_shown(key)}"]
    return []


def parse_run(body: Any, cwd: str) -> Launch:
    """A run from the body of its request; a relative `cwd` in it counts from the given one. Raises `InvalidValue`."""
    if not isinstance(body, dict):
        raise InvalidValue(f"a run is an object, not {_shown(body)}")
    jsonvalue.check(body)
    given = {name: value for name, value in body.items() if value is not None}
    forms = [name for name in ("tasks", "chain", "workflow", "source") if name in given]
    if not forms and "task" in given:
        forms = ["single"]
    if len(forms) != 1:
        raise InvalidValue(f"{len(forms)} forms of a run: {FORMS}" if forms else f"no run: {FORMS}")
    form = forms[0]
    problems = _run_fields(given, form)
    folder = os.path.abspath(os.path.join(cwd, str(given.get("cwd", "."))))
    launch = Launch(form="script" if form in ("workflow", "source") else form, cwd=folder)  # type: ignore[arg-type]
    if form == "single":
        spec = {name: given[name] for name in CALL_FIELDS if name in given and name != "cwd"}
        launch.steps = [{"key": given.get("key", str(given.get("agent"))), **spec}]
    elif form in ("tasks", "chain"):
        launch.steps = _steps(given, form, problems)
    else:
        launch.workflow, launch.source = given.get("workflow"), given.get("source")
        named = str(launch.workflow or "")
        language = given.get("language", "javascript" if named.endswith((".js", ".mjs")) else "python")
        if language not in ("python", "javascript"):
            problems.append(f"language: python or javascript, not {_shown(language)}")
        else:
            launch.language = language
    for number, step in enumerate(launch.steps):
        where = f"{form}[{number}]: " if form != "single" else ""
        problems += [where + problem for problem in [*check_key(step.get("key")), *check_call(step, step=True)]]
    keys = [step.get("key") for step in launch.steps]
    problems += [f"key {key!r} is given twice" for key in {str(key) for key in keys if keys.count(key) > 1}]
    _workflow_fields(given, launch, problems)
    if problems:
        raise InvalidValue("; ".join(problems))
    return launch


def _run_fields(given: dict[str, Any], form: str) -> list[str]:
    known = {"cwd", "usageBudget", "maxCalls", "name", *([form] if form != "single" else [])}
    if form == "single":
        known |= {*CALL_FIELDS, "key"}
    elif form in ("tasks", "chain"):
        known |= set(LIST_DEFAULTS)
        if "task" in given:
            return [f"task: it goes into the steps of {form}"]
    else:
        known |= {"args", "inputs", "language"}
    problems = []
    for name in given:
        if name not in known:
            listed = name in CALL_FIELDS or name in RUN_FIELDS
            problems.append(f"{name}: not with {form}" if listed else f"{name}: no such field")
    return problems


def _steps(given: dict[str, Any], form: str, problems: list[str]) -> list[dict[str, Any]]:
    steps = given[form]
    if not isinstance(steps, list) or not steps:
        problems.append(f"{form}: a list with steps, not {_shown(steps)}")
        return []
    defaults = {name: given[name] for name in LIST_DEFAULTS if name in given}
    found = []
    for number, step in enumerate(steps):
        if not isinstance(step, dict):
            problems.append(f"{form}[{number}]: a spec is an object, not {_shown(step)}")
            continue
        found.append({"key": f"{form}:{number}", **defaults, **step})
    return found


def _workflow_fields(given: dict[str, Any], launch: Launch, problems: list[str]) -> None:
    if "usageBudget" in given:
        problems += [f"usageBudget: {problem}" for problem in _budget(given["usageBudget"])]
        launch.budget = given["usageBudget"] if isinstance(given["usageBudget"], dict) else {}
    if "maxCalls" in given:
        limit = given["maxCalls"]
        if type(limit) is not int or limit < 1:
            problems.append(f"maxCalls: a whole number from 1, not {_shown(limit)}")
        else:
            launch.max_calls = limit
    for name, check in (("cwd", _path), ("name", _text), ("workflow", _path), ("source", _text)):
        if name in given:
            problems += [f"{name}: {problem}" for problem in check(given[name])]
    launch.name = given.get("name")
    launch.args = given.get("args")
    inputs = given.get("inputs", {})
    if not isinstance(inputs, dict) or any(_path(path) for path in inputs.values()):
        problems.append(f"inputs: names with paths, not {_shown(inputs)}")
        return
    for name in inputs:
        if name in (".", "..") or not name or len(quote(name, safe="")) > LONGEST_KEY:
            problems.append(f"inputs: not a name: {_shown(name)}")
    launch.inputs = inputs


def check_labels(labels: Any) -> dict[str, str]:
    """Labels of a run: flat, short texts. Raises `InvalidValue`."""
    if not isinstance(labels, dict):
        raise InvalidValue(f"invalid-labels: names with texts, not {_shown(labels)}")
    problems = [f"more than {LABELS}"] if len(labels) > LABELS else []
    for key, value in labels.items():
        good = (
            isinstance(key, str)
            and 0 < len(key) <= 64
            and all(c.isascii() and (c.isalnum() or c in "_.:-") for c in key)
        )
        if not good:
            problems.append(f"the key {_shown(key)}")
        if not isinstance(value, str) or len(value) > 256:
            problems.append(f"the value of {_shown(key)}")
    if not problems and not jsonvalue.is_strict(labels):
        problems.append("half a character")
    if not problems and len(msgspec.json.encode(labels)) > LABEL_BYTES:
        problems.append(f"more than {LABEL_BYTES} bytes")
    if problems:
        raise InvalidValue("invalid-labels: " + "; ".join(problems))
    return dict(labels)


def with_previous(task: str, previous: str) -> str:
    """The task of a chain's step: every `{previous}` is the output before it, as it is."""
    return previous.join(task.split("{previous}"))


def fingerprint(spec: dict[str, Any], agent: Any) -> str:
    """Of a call's spec with the pinned definition of its agent: what a replay must propose again."""
    content = {name: value for name, value in spec.items() if name != "key"}
    return canonical_digest({"spec": content, "agent": msgspec.to_builtins(agent)})


def agents_named(steps: Iterable[dict[str, Any]]) -> list[str]:
    """The agents of these steps, each once."""
    return list(dict.fromkeys(str(step.get("agent")) for step in steps))


def could_use(launch: Launch, script: str, agent: str) -> bool:
    """Whether a run may use an agent: a step names it, or it stands in quotes in the script, or as a text in the
    arguments."""
    if agent in agents_named(launch.steps) or agent in _texts(launch.args):
        return True
    return any(f"{mark}{agent}{mark}" in script for mark in "\"'`")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _shown(value: Any) -> str:
    return f"{value!r:.80}"
