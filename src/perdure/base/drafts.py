"""Drafts: plain-looking dicts and lists whose edits are recorded as patch operations."""

from typing import Any, NoReturn

from patchdiff.pointer import Pointer
from patchdiff.produce import DictProxy, ListProxy, PatchRecorder

from perdure.base import jsonvalue
from perdure.base.delta import Operation, same
from perdure.base.errors import InvalidValue, InvocationEnded
from perdure.base.jsonvalue import Json


class _Recorder(PatchRecorder):
    """Records edits as our operations; refuses them once the draft is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Operation] = []
        self.finished = False

    def record_add(self, path: Pointer, value: Any, reverse_path: Pointer | None = None) -> None:
        self._record({"op": "add", "path": str(path), "value": plain(value)}, path)

    def record_remove(self, path: Pointer, old_value: Any, reverse_path: Pointer | None = None) -> None:
        self._record({"op": "remove", "path": str(path)}, path)

    def record_replace(self, path: Pointer, old_value: Any, new_value: Any) -> None:
        if same(plain(old_value), plain(new_value)):
            return
        if type(old_value) is str and type(new_value) is str and old_value and new_value.startswith(old_value):
            self._record({"op": "append", "path": str(path), "value": new_value[len(old_value) :]}, path)
        else:
            self._record({"op": "replace", "path": str(path), "value": plain(new_value)}, path)

    def _record(self, op: Operation, path: Pointer) -> None:
        if self.finished:
            raise InvocationEnded("the draft's transaction has ended", hint="open a new one to edit the document")
        for token in path.tokens:
            if type(token) is not str and type(token) is not int:
                raise InvalidValue(f"a key that is no text: {token!r}", path=str(path))
        if "value" in op:
            jsonvalue.check(op["value"], path=op["path"])
        self.ops.append(op)


class _Revoked:
    """Stands in a finished draft: every use of it says so."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise InvocationEnded("the draft's transaction has ended", hint="open a new one to edit the document")

    __getattr__ = __getitem__ = __setitem__ = __delitem__ = __iter__ = __len__ = __contains__ = __bool__ = _refuse


class Draft:
    """One editing of a JSON object or list. `root` is edited like a dict or list; the original is never touched."""

    def __init__(self, value: Json) -> None:
        self._original = value
        self._recorder = _Recorder()
        copy = plain(value)
        self.root: Any = (ListProxy if isinstance(copy, list) else DictProxy)(copy, self._recorder)

    def finish(self) -> tuple[Json, list[Operation]]:
        """The new value and the operations that lead to it; no operations if nothing changed in the end.

        Raises `InvalidValue` with the path where something is not strict JSON. Every later use of the draft raises.
        """
        value, ops = self.root._data, self._recorder.ops
        self.revoke()
        if not ops or same(value, self._original):
            return self._original, []
        jsonvalue.check(value)
        return value, ops

    def revoke(self) -> None:
        """Give up the edits; every later use of the draft raises."""
        self._recorder.finished = True
        _revoke(self.root)


def _revoke(proxy: Any) -> None:
    for child in (proxy._proxies or {}).values():
        _revoke(child)
    proxy._data = _Revoked()


def plain(value: Any) -> Json:
    """A draft, or something that holds parts of one, as JSON values of its own."""
    kind = type(value)
    if kind is DictProxy or kind is ListProxy:
        return plain(value._data)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
