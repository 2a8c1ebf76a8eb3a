"""Drafts: edited like dicts and lists, they record what is done to them as patch operations."""

from typing import Any, Final, NoReturn

from perdure.base import jsonvalue
from perdure.base.delta import Operation, apply, diff, same
from perdure.base.errors import InvalidValue, InvocationEnded
from perdure.base.jsonvalue import Json
from perdure.base.patching import PROXIES_MODULE, is_proxy, proxies

MANY_OPERATIONS: Final = 64
"""Operations beyond which `finish` looks whether plainly comparing the values takes fewer, as after sorting a list."""
_SCALARS: Final = (int, float, bool, type(None))


class _Recorder:
    """What patchdiff's proxies tell about edits, as our operations; refused once the draft is finished."""

    def __init__(self) -> None:
        self.ops: list[Operation] = []
        self._epoch = 0
        self._finished = False

    @property
    def epoch(self) -> int:
        """Every proxy asks for it before it writes, also one whose place in the draft is gone."""
        if self._finished:
            _refuse()
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def finish(self) -> None:
        self._finished = True

    def record_add(self, path: Any, value: Any, reverse_path: Any | None = None) -> None:
        where = _where(path)
        self.ops.append({"op": "add", "path": where, "value": _checked(value, where)})

    def record_remove(self, path: Any, old_value: Any, reverse_path: Any | None = None) -> None:
        self.ops.append({"op": "remove", "path": _where(path)})

    def record_replace(self, path: Any, old_value: Any, new_value: Any) -> None:
        where = _where(path)
        if type(new_value) in _SCALARS:
            jsonvalue.check(new_value, path=where)
            if type(old_value) is not type(new_value) or old_value != new_value:
                self._replace(where, new_value)
            return
        if type(new_value) is not str:
            self.ops += diff(plain(old_value), _checked(new_value, where), path=where)
            return
        jsonvalue.check(new_value, path=where)
        last = self._last(where)
        if old_value and type(old_value) is str and new_value.startswith(old_value) and last not in ("add", "replace"):
            self._grow(where, new_value[len(old_value) :], last)
        elif old_value != new_value:
            self._replace(where, new_value)

    def _last(self, where: str) -> str | None:
        """What was done last, if it was done here."""
        return self.ops[-1]["op"] if self.ops and self.ops[-1]["path"] == where else None

    def _replace(self, where: str, value: Json) -> None:
        """What is replaced again and again at one place was replaced once."""
        if self._last(where) in ("add", "replace"):
            self.ops[-1]["value"] = value
        elif self._last(where) == "append":
            self.ops[-1] = {"op": "replace", "path": where, "value": value}
        else:
            self.ops.append({"op": "replace", "path": where, "value": value})

    def _grow(self, where: str, more: str, last: str | None) -> None:
        """Text that grows piece by piece grew once."""
        if last == "append":
            self.ops[-1]["value"] += more
        elif more:
            self.ops.append({"op": "append", "path": where, "value": more})


def _where(path: Any) -> str:
    steps = []
    for token in path.tokens:
        if type(token) is str:
            steps.append(jsonvalue.escape(token))
        elif type(token) is int:
            steps.append(str(token))
        else:
            raise InvalidValue(f"a key that is no text: {token!r}", path="".join(f"/{step}" for step in steps))
    return "/" + "/".join(steps)


def _checked(value: Any, where: str) -> Json:
    value = plain(value)
    jsonvalue.check(value, path=where)
    return value


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise InvocationEnded("the draft's transaction has ended", hint="open a new one to edit the document")


class _Revoked:
    """Stands in a finished draft: every use of it says so."""

    __getitem__ = __setitem__ = __delitem__ = __iter__ = __reversed__ = __len__ = __contains__ = __bool__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __or__ = __ror__ = __add__ = __mul__ = __rmul__ = _refuse
    __str__ = __repr__ = __format__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> NoReturn:
        _refuse()


class Draft:
    """One editing of a JSON object or list. `root` is edited like a dict or list; the original is never touched.

    What is put in is copied into the operation at once, and refused with its path where it is not strict JSON. Equal
    proxies of two places are not `==`; `plain` makes values of them.
    """

    __slots__ = ("_original", "_recorder", "root")

    def __init__(self, value: Json) -> None:
        self._original = value
        self._recorder = _Recorder()
        proxy = proxies().list if isinstance(value, list) else proxies().dict
        self.root: Any = proxy(jsonvalue.copied(value), self._recorder)

    def finish(self) -> tuple[Json, list[Operation]]:
        """The new value and the operations that lead to it; no operations if nothing changed in the end.

        The value shares unchanged parts with the original, and nothing with objects that the caller holds. Raises
        `InvalidValue` with the path where something is not strict JSON. Every later use of the draft raises.
        """
        edited, ops = self.root._data, self._recorder.ops
        if isinstance(edited, _Revoked):
            _refuse()
        self.revoke()
        jsonvalue.check(edited)
        if same(edited, self._original):
            return self._original, []
        value = self._replayed(ops)
        if not same(value, edited):  # somebody changed an object after putting it in, or an edit failed halfway
            ops = diff(self._original, edited)
        elif len(ops) > MANY_OPERATIONS:
            ops = min(ops, diff(self._original, edited), key=lambda some: len(jsonvalue.encode(some)))
        else:
            return value, ops
        return apply(self._original, ops), ops

    def revoke(self) -> None:
        """Give up the edits; every later use of the draft raises."""
        self._recorder.finish()
        _revoke(self.root)

    def _replayed(self, ops: list[Operation]) -> Json:
        try:
            return apply(self._original, ops)
        except InvalidValue:
            return None


def _revoke(root: Any) -> None:
    proxies = [root]
    while proxies:  # without recursion: an edit may have nested deeper than Python's stack goes
        proxy = proxies.pop()
        proxies += (proxy._proxies or {}).values()
        proxy._data = _Revoked()


def too_deep(error: BaseException) -> InvalidValue | None:
    """What was put into a draft nests deeper than the stack of the code that took it; None: it is another error."""
    if not isinstance(error, RecursionError) or error.__traceback__ is None:
        return None
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    if trace.tb_frame.f_globals.get("__name__") != PROXIES_MODULE:
        return None
    return InvalidValue(f"a value put into a draft is nested deeper than {jsonvalue.DEPTH_LIMIT} levels")


def is_draft(value: Any) -> bool:
    """Whether it is a draft's root or a part of one."""
    return is_proxy(value)


def plain(value: Any) -> Json:
    """A draft, or something that holds parts of one, as JSON values of its own. Other values come back as they are.

    Raises `InvalidValue` for what is nested deeper than JSON may be here, so also for what holds itself.
    """
    return _plain(value, jsonvalue.DEPTH_LIMIT)


def _plain(value: Any, levels: int) -> Json:
    if isinstance(value, _Revoked):
        _refuse()
    if is_draft(value):
        return _plain(value._data, levels)
    if isinstance(value, dict | list):
        if not levels:
            raise InvalidValue(f"nested deeper than {jsonvalue.DEPTH_LIMIT} levels")
        if isinstance(value, dict):
            return {key: _plain(item, levels - 1) for key, item in value.items()}
        return [_plain(item, levels - 1) for item in value]
    return value
