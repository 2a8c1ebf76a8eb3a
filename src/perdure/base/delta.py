"""Patch operations: RFC 6902 JSON Patch, and one of ours, `append` (text to the end of a string).

Values are never changed in place: applying operations copies along the changed paths and shares the rest.
"""

from typing import Any, Final

from perdure.base.errors import InvalidValue
from perdure.base.jsonvalue import Json, canonical, copied, encode, escape, unescape
from perdure.base.patching import edit_script

Operation = dict[str, Any]
"""{"op": "add" | "remove" | "replace" | "move" | "copy" | "test" | "append", "path": pointer, "value" or "from"}."""


EDIT_SCRIPT_ITEMS: Final = 1000
"""Items of both lists together, between their equal ends, up to which the shortest edit script is looked for: the
search takes time with their square, some 50 ms here."""


def root_replacement(value: Json) -> list[Operation]:
    """The operations that give a document a whole new value."""
    return [{"op": "replace", "path": "", "value": value}]


def apply(value: Json, ops: list[Operation]) -> Json:
    """The value after the operations, in their order; `value` stays as it was.

    Each changed container is copied once in a call; what did not change, and the operations' own values, are shared
    with the result. Raises `InvalidValue` with the path of an operation that does not apply; then nothing happened.
    Values of operations are not checked for being JSON: `jsonvalue.check` does that where they come from outside.
    """
    if len(ops) == 1 and type(value) is dict:
        changed = _member_replaced(value, ops[0])
        if changed is not None:
            return changed
    editing = _Editing(value)
    for op in ops:
        editing.apply(op)
    return editing.root


def _member_replaced(value: dict[str, Any], op: Operation) -> Json | None:
    """The most frequent change of all, done directly: one member of the root replaced. None: it is another change."""
    path = op.get("path")
    if op.get("op") != "replace" or type(path) is not str or path[:1] != "/" or "~" in path or "value" not in op:
        return None
    key = path[1:]
    return {**value, key: op["value"]} if key in value and "/" not in key else None


class _Editing:
    """A value under change: containers that this editing made may be changed in place, all others are copied first."""

    __slots__ = ("_fresh", "root")

    def __init__(self, root: Json) -> None:
        self.root = root
        self._fresh: dict[int, Any] = {}  # keeps the containers alive, so that their ids stay theirs

    def apply(self, op: Operation) -> None:
        try:
            kind, path = op["op"], op["path"]
            if kind == "move" or kind == "copy":
                self._transfer(kind, op["from"], path)
            elif path == "":
                self._at_root(kind, op)
            else:
                parent, last = self._reach(path)
                if type(parent) is list:
                    _change_list(parent, last, kind, op, path)
                else:
                    _change_dict(parent, last, kind, op, path)
        except KeyError as missing:
            raise InvalidValue(f"an operation without {missing}: {op!r:.200}") from None

    def _reach(self, path: str) -> tuple[Any, str]:
        """The container at the end of the path, ours to change, and the path's last step."""
        steps = _steps(path)
        parent = self.root = self._own(self.root, path)
        last = steps.pop()
        for step in steps:
            at = _index(parent, step, path) if type(parent) is list else step
            child = _get(parent, at, path)
            if id(child) not in self._fresh:
                child = parent[at] = self._own(child, path)
            parent = child
        return parent, last

    def _own(self, container: Any, path: str) -> Any:
        if id(container) in self._fresh:
            return container
        if isinstance(container, dict):
            copy: Any = dict(container)
        elif isinstance(container, list):
            copy = list(container)
        else:
            raise InvalidValue("the path leads through something that is neither object nor list", path=path)
        self._fresh[id(copy)] = copy
        return copy

    def _at_root(self, kind: str, op: Operation) -> None:
        if kind == "replace" or kind == "add":
            self.root = op["value"]
        elif kind == "append":
            self.root = _appended(self.root, op["value"], "")
        elif kind == "test":
            _test(self.root, op["value"], "")
        else:
            raise InvalidValue(f"the operation {kind!r} does not apply to the root")

    def _transfer(self, kind: str, source: str, path: str) -> None:
        value = value_at(self.root, source)
        if kind == "move":
            if path == source:
                return
            if path.startswith(f"{source}/"):
                raise InvalidValue("a value cannot move into itself", path=path)
            self.apply({"op": "remove", "path": source})
        else:
            self._fresh.clear()  # the value now stands in two places: neither may be changed in place
        self.apply({"op": "add", "path": path, "value": value})


def _change_dict(parent: dict[str, Any], key: str, kind: str, op: Operation, path: str) -> None:
    if kind == "add":
        parent[key] = op["value"]
        return
    old = _get(parent, key, path)
    if kind == "append":
        parent[key] = _appended(old, op["value"], path)
    elif kind == "replace":
        parent[key] = op["value"]
    elif kind == "remove":
        del parent[key]
    elif kind == "test":
        _test(old, op["value"], path)
    else:
        raise InvalidValue(f"no such operation: {kind!r}", path=path)


def _change_list(parent: list[Any], step: str, kind: str, op: Operation, path: str) -> None:
    if kind == "add":
        at = len(parent) if step == "-" else _index(parent, step, path)
        if at > len(parent):
            raise InvalidValue("beyond the end of a list", path=path)
        parent.insert(at, op["value"])
        return
    at = _index(parent, step, path)
    old = _get(parent, at, path)
    if kind == "append":
        parent[at] = _appended(old, op["value"], path)
    elif kind == "replace":
        parent[at] = op["value"]
    elif kind == "remove":
        del parent[at]
    elif kind == "test":
        _test(old, op["value"], path)
    else:
        raise InvalidValue(f"no such operation: {kind!r}", path=path)


def _appended(old: Any, more: Any, path: str) -> str:
    if not isinstance(old, str) or not isinstance(more, str):
        raise InvalidValue("append adds text to text and to nothing else", path=path)
    return old + more


def _test(found: Any, expected: Any, path: str) -> None:
    if not same(found, expected):
        raise InvalidValue("a test operation found another value", path=path)


def _steps(path: str) -> list[str]:
    if type(path) is not str or path[:1] != "/":
        raise InvalidValue(f"not a JSON pointer: {path!r}")
    steps = path.split("/")
    del steps[0]
    return [unescape(step) for step in steps] if "~" in path else steps


def _get(parent: Any, at: Any, path: str) -> Any:
    try:
        return parent[at]
    except (KeyError, IndexError):
        raise InvalidValue("the path leads nowhere", path=path) from None


def _index(parent: list[Any], step: str, path: str) -> int:
    if not (step.isascii() and step.isdigit()) or (len(step) > 1 and step[0] == "0") or len(step) > 15:
        raise InvalidValue(f"not an index of a list of {len(parent)}", path=path)
    return int(step)


def value_at(value: Json, path: str) -> Json:
    """What stands at a JSON pointer. Raises `InvalidValue` if the path leads nowhere."""
    if path == "":
        return value
    for step in _steps(path):
        if isinstance(value, list):
            value = _get(value, _index(value, step, path), path)
        elif isinstance(value, dict):
            value = _get(value, step, path)
        else:
            raise InvalidValue("the path leads through something that is neither object nor list", path=path)
    return value


def same(left: Json, right: Json) -> bool:
    """Whether two JSON values are equal as JSON: 1, 1.0 and true differ; the order of keys does not count."""
    return bool(left == right) and _alike(left, right)


def _alike(left: Any, right: Any) -> bool:
    """Whether equal values are also of the same kinds: True == 1 == 1.0 in Python."""
    if left is right:
        return True
    if isinstance(left, dict):
        return all(item is right[key] or _alike(item, right[key]) for key, item in left.items())
    if isinstance(left, list):
        return all(map(_alike, left, right))
    return type(left) is type(right)


def diff(old: Json, new: Json, *, path: str = "") -> list[Operation]:
    """The operations that lead from one value to the other, in a fixed order; none if they are the same.

    Grown text becomes an `append`. Where the differences would take more bytes than the whole new value, it is one
    replacement. Keys that are added come in the order of `new`; the order of keys is otherwise no difference. `path`
    is where the values stand in their document. The operations share nothing with the values.
    """
    ops: list[Operation] = []
    _diff(old, new, path, ops)
    if not ops:
        return ops
    if len(ops) > 1 and len(encode(ops)) >= len(encode(new)) + len(path) + len('[{"op":"replace","path":"","value":}]'):
        ops = [{"op": "replace", "path": path, "value": new}]
    detached: list[Operation] = copied(ops)
    return detached


def _diff(old: Any, new: Any, path: str, ops: list[Operation]) -> None:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                ops.append({"op": "remove", "path": f"{path}/{escape(key)}"})
        for key, item in new.items():
            if key not in old:
                ops.append({"op": "add", "path": f"{path}/{escape(key)}", "value": item})
            elif item is not old[key]:
                _diff(old[key], item, f"{path}/{escape(key)}", ops)
    elif isinstance(old, list) and isinstance(new, list):
        _diff_lists(old, new, path, ops)
    elif type(old) is str and type(new) is str and old and len(new) > len(old) and new.startswith(old):
        ops.append({"op": "append", "path": path, "value": new[len(old) :]})
    elif type(old) is not type(new) or old != new:
        ops.append({"op": "replace", "path": path, "value": new})


def _diff_lists(old: list[Any], new: list[Any], path: str, ops: list[Operation]) -> None:
    """The shortest edit script comes from patchdiff, over digests, so that 1 and true stay apart; items pair here."""
    begin, shorter = 0, min(len(old), len(new))
    while begin < shorter and same(old[begin], new[begin]):
        begin += 1
    end = 0
    while end < shorter - begin and same(old[-1 - end], new[-1 - end]):
        end += 1
    middle = len(old) - begin - end + len(new) - begin - end
    if middle <= EDIT_SCRIPT_ITEMS:
        _diff_middle(old[begin : len(old) - end], new[begin : len(new) - end], begin, path, ops)
    elif len(old) == len(new):
        for position in range(begin, len(new) - end):
            _diff(old[position], new[position], f"{path}/{position}", ops)
    else:
        ops.append({"op": "replace", "path": path, "value": new})


def _diff_middle(current: list[Any], new: list[Any], begin: int, path: str, ops: list[Operation]) -> None:
    wanted = [canonical(item) for item in new]
    items = dict(zip(wanted, new, strict=True))
    for step in edit_script([canonical(item) for item in current], wanted):
        place = step["path"].tokens[0]
        at = len(current) if place == "-" else int(place)
        where = f"{path}/{begin + at}"
        if step["op"] == "remove":
            del current[at]
            ops.append({"op": "remove", "path": where})
        elif step["op"] == "add":
            current.insert(at, items[step["value"]])
            ops.append({"op": "add", "path": where, "value": items[step["value"]]})
        else:
            _diff(current[at], items[step["value"]], where, ops)
            current[at] = items[step["value"]]
