"""Patch operations: RFC 6902 JSON Patch, and one of ours, `append` (text to the end of a string).

Values are never changed in place: applying operations copies along the changed paths and shares the rest.
"""

from typing import Any

from patchdiff import diff as structural_diff

from perdure.base.errors import InvalidValue
from perdure.base.jsonvalue import Json

Operation = dict[str, Any]
"""{"op": "add" | "remove" | "replace" | "append", "path": JSON pointer, "value": …}."""


def root_replacement(value: Json) -> list[Operation]:
    """The operations that give a document a whole new value."""
    return [{"op": "replace", "path": "", "value": value}]


def apply(value: Json, ops: list[Operation]) -> Json:
    """The value after the operations. Raises `InvalidValue` on a path that leads nowhere; `value` stays as it was."""
    fresh: dict[int, Any] = {}
    for op in ops:
        value = _apply_one(value, op, fresh)
    return value


def _own(container: Any, fresh: dict[int, Any]) -> Any:
    """The container, copied unless this call made it."""
    if id(container) in fresh:
        return container
    copy: Any = dict(container) if type(container) is dict or isinstance(container, dict) else list(container)
    fresh[id(copy)] = copy
    return copy


def _apply_one(root: Json, op: Operation, fresh: dict[int, Any]) -> Json:
    kind, path = op["op"], op["path"]
    if path == "":
        return _apply_at_root(root, kind, op)
    steps = [step.replace("~1", "/").replace("~0", "~") if "~" in step else step for step in path.split("/")[1:]]
    root = _own(_container(root, path), fresh)
    parent = root
    for step in steps[:-1]:
        at = _index(parent, step, path) if isinstance(parent, list) else step
        child = _own(_container(_get(parent, at, path), path), fresh)
        parent[at] = child
        parent = child
    _apply_at(parent, steps[-1], kind, op, path)
    return root


def _apply_at_root(root: Json, kind: str, op: Operation) -> Json:
    if kind in ("replace", "add"):
        return op["value"]
    if kind == "append" and isinstance(root, str):
        return root + op["value"]
    raise InvalidValue(f"the operation {kind!r} does not apply to the root")


def _apply_at(parent: Any, last: str, kind: str, op: Operation, path: str) -> None:
    if isinstance(parent, list):
        if kind == "add":
            at = len(parent) if last == "-" else _index(parent, last, path, past_end=True)
            parent.insert(at, op["value"])
            return
        at = _index(parent, last, path)
    else:
        at = last  # type: ignore[assignment]
        if kind == "add":
            parent[at] = op["value"]
            return
    if kind == "replace":
        _get(parent, at, path)
        parent[at] = op["value"]
    elif kind == "append":
        old = _get(parent, at, path)
        if not isinstance(old, str):
            raise InvalidValue("append to something that is no text", path=path)
        parent[at] = old + op["value"]
    elif kind == "remove":
        _get(parent, at, path)
        del parent[at]
    else:
        raise InvalidValue(f"no such operation: {kind!r}", path=path)


def _container(value: Any, path: str) -> Any:
    if not isinstance(value, dict | list):
        raise InvalidValue("the path leads through something that is neither object nor list", path=path)
    return value


def _get(parent: Any, at: Any, path: str) -> Any:
    try:
        return parent[at]
    except (KeyError, IndexError):
        raise InvalidValue("the path leads nowhere", path=path) from None


def _index(parent: list[Any], step: str, path: str, *, past_end: bool = False) -> int:
    if not step.isdecimal() or (len(step) > 1 and step[0] == "0"):
        raise InvalidValue("not an index of a list", path=path)
    at = int(step)
    if at > len(parent) or (at == len(parent) and not past_end):
        raise InvalidValue("beyond the end of a list", path=path)
    return at


def diff(old: Json, new: Json) -> list[Operation]:
    """The operations that lead from one value to the other; grown text becomes an `append`."""
    if same(old, new):
        return []
    if not (isinstance(old, dict) and isinstance(new, dict)) and not (isinstance(old, list) and isinstance(new, list)):
        return _grown(old, new, "") or root_replacement(new)
    forward, _ = structural_diff(old, new)
    ops = [_plain_operation(op) for op in forward]
    if len(ops) == 1 and ops[0]["op"] == "replace":  # several operations may depend on each other's places
        grown = _grown(_at(old, ops[0]["path"]), ops[0]["value"], ops[0]["path"])
        ops = grown or ops
    return ops if same(apply(old, ops), new) else root_replacement(new)


def _plain_operation(op: Any) -> Operation:
    plain_op: Operation = {"op": op["op"], "path": str(op["path"])}
    if "value" in op:
        plain_op["value"] = op["value"]
    return plain_op


def _grown(old: Any, new: Any, path: str) -> list[Operation]:
    if type(old) is str and type(new) is str and old and len(new) > len(old) and new.startswith(old):
        return [{"op": "append", "path": path, "value": new[len(old) :]}]
    return []


def _at(value: Json, path: str) -> Any:
    for step in path.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def same(left: Json, right: Json) -> bool:
    """Whether two JSON values are equal in JSON, where true, 1 and 1.0 differ."""
    return left is right or (bool(left == right) and _same_kinds(left, right))


def _same_kinds(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return isinstance(right, dict) and all(_same_kinds(item, right[key]) for key, item in left.items())
    if isinstance(left, list):
        return isinstance(right, list) and all(map(_same_kinds, left, right))
    return type(left) is type(right)
