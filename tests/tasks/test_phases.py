"""What may be a phase, and how its arguments are stored and read."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest

from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.base.ids import TaskId
from perdure.tasks.decisions import Next
from perdure.tasks.phases import BoundPhase, Phase, phase
from tests.tasks.shop import PAYMENT, Payment, Receipt


def checked(function: Any, *, first: bool = False) -> Phase[Any, Any]:
    """The function as a phase of a class, checked as `@task` does."""
    found: Phase[Any, Any] = phase(first=True)(function) if first else phase(function)
    found.__set_name__(Payment, function.__name__)
    found.check()
    return found


async def reserved_on(self: Any, run: Any, on: int) -> Any: ...
async def reserved_policy(self: Any, run: Any, policy: int) -> Any: ...
async def reserved_then(self: Any, run: Any, *, then: int) -> Any: ...
async def reserved_signals(self: Any, run: Any, signals: int = 1) -> Any: ...
async def reserved_until(self: Any, run: Any, until: int) -> Any: ...
async def many(self: Any, run: Any, *rest: int) -> Any: ...
async def named(self: Any, run: Any, **rest: int) -> Any: ...
async def by_position(self: Any, run: Any, n: int, /) -> Any: ...
async def no_run(self: Any) -> Any: ...
async def run_among_many(self: Any, *runs: Any) -> Any: ...
async def run_by_name(self: Any, *, run: Any) -> Any: ...
def not_async(self: Any, run: Any) -> Any: ...
async def of_bytes(self: Any, run: Any, blob: bytes) -> Any: ...
async def of_keys(self: Any, run: Any, by_id: dict[int, str]) -> Any: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (reserved_on, "'on'"),
        (reserved_policy, "'policy'"),
        (reserved_then, "'then'"),
        (reserved_signals, "'signals'"),
        (reserved_until, "'until'"),
        (many, "'rest' cannot be stored by name"),
        (named, "'rest' cannot be stored by name"),
        (by_position, "'n' cannot be stored by name"),
        (no_run, "takes .self, run"),
        (run_among_many, "takes .self, run"),
        (run_by_name, "takes .self, run"),
        (not_async, "is an async def"),
        (of_bytes, r"\(blob\).*bytes"),
        (of_keys, r"\(by_id\)"),
    ],
)
def test_a_signature_that_a_checkpoint_cannot_hold_is_refused(function: Any, message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message) as caught:
        checked(function)
    assert f"Payment.{function.__name__}" in str(caught.value)


def test_the_first_phase_takes_only_arguments_with_defaults() -> None:
    async def begin(self: Any, run: Any, n: int) -> Any: ...
    async def good(self: Any, run: Any, n: int = 1, *, m: str | None = None) -> Any: ...

    with pytest.raises(InvalidDefinition, match=r"Payment\.begin: .*default.*'n'"):
        checked(begin, first=True)
    assert checked(good, first=True).decode({}) == {}


def test_the_annotation_of_run_is_never_evaluated() -> None:
    async def begin(self: Any, what: "Nowhere[all]", n: int) -> Any: ...  # type: ignore[name-defined]  # noqa: F821

    assert checked(begin).encode((1,), {}) == {"n": 1}


def test_on_an_instance_a_phase_is_bound_and_on_the_class_it_is_itself() -> None:
    bound = Payment("visa").charge
    assert isinstance(bound, BoundPhase)
    assert bound.name == "charge"
    assert isinstance(Payment.charge, Phase)


async def test_a_bound_phase_can_be_called_in_a_unit_test() -> None:
    class Run:
        def complete(self, result: Any) -> Any:
            return result

    returned: Any = await Payment("visa").settle(Run(), [TaskId(1)], note="x")
    assert returned == Receipt(2, "x")


# arguments


async def all_kinds(
    self: Any,
    run: Any,
    text: str,
    number: int = 0,
    share: float = 0.0,
    flag: bool = False,
    maybe: str | None = None,
    ids: list[TaskId] = [],  # noqa: B006
    receipt: Receipt | None = None,
    word: Literal["a", "b"] = "a",
    small: Annotated[int, msgspec.Meta(le=9)] = 0,
    anything: Any = None,
    either: int | str = 0,
) -> Any: ...


ALL = checked(all_kinds)

GOOD: list[tuple[str, Any, Any]] = [
    ("text", "", ""),
    ("text", "größer 🐟", "größer 🐟"),
    ("number", -(2**53 - 1), -(2**53 - 1)),
    ("share", 0.5, 0.5),
    ("flag", True, True),
    ("maybe", None, None),
    ("maybe", "x", "x"),
    ("ids", [TaskId(1), TaskId(2)], [1, 2]),
    ("ids", [], []),
    ("receipt", Receipt(1), {"number": 1, "note": None}),
    ("receipt", None, None),
    ("word", "b", "b"),
    ("small", 9, 9),
    ("anything", {"a": [1, None, 0.5]}, {"a": [1, None, 0.5]}),
    ("either", "x", "x"),
    ("either", 1, 1),
]


@pytest.mark.parametrize(("name", "value", "stored"), GOOD)
def test_an_argument_is_stored_as_json_and_comes_back(name: str, value: Any, stored: Any) -> None:
    given = {"text": "t", name: value}
    encoded = ALL.encode((), given)
    assert encoded == {"text": "t", name: stored}
    assert type(encoded[name]) is type(stored)
    decoded = ALL.decode(encoded)
    assert decoded == given
    assert type(decoded[name]) is type(value)


BAD: list[tuple[str, Any]] = [
    ("text", None),
    ("text", 5),
    ("text", b"x"),
    ("text", "\ud800"),
    ("number", True),
    ("number", 1.0),
    ("number", "1"),
    ("number", 2**53),
    ("share", float("nan")),
    ("share", float("inf")),
    ("flag", 1),
    ("maybe", 5),
    ("ids", (1, 2)),
    ("ids", [1, True]),
    ("ids", [1, "2"]),
    ("ids", [2**60]),
    ("ids", 5),
    ("receipt", {"number": 1}),
    ("receipt", Receipt("1")),  # type: ignore[arg-type]
    ("word", "c"),
    ("small", 10),
    ("anything", {1: 2}),
    ("anything", {"a": {1, 2}}),
    ("either", 1.5),
    ("either", None),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_an_argument_of_another_type_is_refused_and_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"Payment\.all_kinds\({name}\)"):
        ALL.encode((), {"text": "t", name: value})


@pytest.mark.parametrize(
    ("name", "data"), [("text", 5), ("number", True), ("ids", [1, "x"]), ("receipt", {"no": 1}), ("small", 10)]
)
def test_a_stored_argument_of_another_type_is_refused_and_named(name: str, data: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"Payment\.all_kinds\({name}\)"):
        ALL.decode({"text": "t", name: data})


class Text(str):
    """A text that would come back as another type."""


def test_a_subclass_of_a_scalar_is_refused() -> None:
    with pytest.raises(InvalidValue):
        ALL.encode((Text("x"),), {})


def test_arguments_are_bound_to_names_by_position_and_by_name() -> None:
    settle = PAYMENT.phase("settle")
    assert settle.encode(([TaskId(1)], "x"), {}) == {"ids": [1], "note": "x"}
    assert settle.encode(([TaskId(1)],), {"note": "x"}) == {"ids": [1], "note": "x"}
    assert settle.encode((), {"note": None, "ids": []}) == {"note": None, "ids": []}
    assert settle.encode(([],), {}) == {"ids": []}


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing arguments: ids"),
        ((), {"note": "x"}, "missing arguments: ids"),
        (([], "x", 3), {}, "takes 2 arguments, 3 were given"),
        (([],), {"ids": []}, "'ids' was given twice"),
        (([],), {"other": 1}, "no parameter 'other'"),
    ],
)
def test_arguments_that_the_phase_does_not_take_are_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=rf"Payment\.settle.*{message}"):
        PAYMENT.phase("settle").encode(args, kwargs)


@pytest.mark.parametrize(
    ("stored", "message"), [({}, "missing arguments: ids"), ({"ids": [], "old": 1}, "'old', for which")]
)
def test_stored_arguments_that_the_phase_does_not_take_are_refused(stored: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        PAYMENT.phase("settle").decode(stored)


def test_a_stored_argument_shares_nothing_with_what_was_given() -> None:
    ids, extra = [TaskId(1)], {"rows": [{"n": 1}]}
    first = PAYMENT.phase("settle").encode((ids,), {})
    second = PAYMENT.phase("review").encode((Receipt(1), extra), {})
    ids.append(TaskId(2))
    extra["rows"][0]["n"] = 2
    assert first == {"ids": [1]}
    assert second["extra"] == {"rows": [{"n": 1}]}


def test_a_phase_that_changes_its_arguments_changes_only_its_own() -> None:
    settled, reviewed = {"ids": [1]}, {"receipt": {"number": 1}, "extra": {"rows": [{"n": 1}]}}
    PAYMENT.phase("settle").decode(settled)["ids"].append(2)
    PAYMENT.phase("review").decode(reviewed)["extra"]["rows"][0]["n"] = 2
    assert settled == {"ids": [1]}
    assert reviewed["extra"] == {"rows": [{"n": 1}]}


def test_an_unannotated_argument_is_any_json() -> None:
    async def loose(self, run, x):  # type: ignore[no-untyped-def]
        ...

    found = checked(loose)
    assert found.encode(({"a": 1},), {}) == {"x": {"a": 1}}
    with pytest.raises(InvalidValue, match=r"Payment\.loose\(x\)"):
        found.encode((b"x",), {})


@dataclass
class Unknown:
    """Stands for what no phase returns."""


def test_the_result_type_is_that_of_the_annotation() -> None:
    async def typed(self: Any, run: Any) -> Next[int]:
        return Next()

    async def untyped(self: Any, run: Any) -> Any: ...
    async def other(self: Any, run: Any) -> list[Unknown]:
        return []

    assert checked(typed).result_type() is int
    assert checked(untyped).result_type() is Any
    assert checked(other).result_type() is Any
