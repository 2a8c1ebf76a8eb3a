"""A task's class is checked when it is decorated, and its definition knows input, phases and results."""

import dataclasses
from typing import Annotated, Any, Never

import msgspec
import pytest

from perdure.base.errors import InvalidDefinition, InvalidValue
from perdure.tasks.decisions import Next
from perdure.tasks.definition import StoredTask, Task, phase, task, task_definition
from perdure.tasks.states import Checkpoint
from tests.tasks.shop import PAYMENT, Payment, Receipt, Stock


def test_the_class_becomes_a_frozen_dataclass_in_place() -> None:
    payment = Payment("visa", amount=3)
    assert (payment.card, payment.amount) == ("visa", 3)
    assert payment == Payment(card="visa", amount=3)
    assert [field.name for field in dataclasses.fields(Payment)] == ["card", "amount"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        payment.card = "other"  # type: ignore[misc]


def test_a_definition_is_found_by_class_and_by_instance() -> None:
    found = task_definition(Payment)
    assert found is task_definition(Payment("visa"))
    assert (found.kind, found.version, found.cls) == ("shop.payment", 2, Payment)
    assert found.first_phase == "charge"
    assert found.has_abort
    assert found.migrate is None
    assert not task_definition(Stock).has_abort


@pytest.mark.parametrize("other", [int, 5, None, object(), "shop.payment"])
def test_what_is_no_task_has_no_definition(other: object) -> None:
    with pytest.raises(InvalidDefinition, match="is no task"):
        task_definition(other)


def test_a_subclass_is_a_task_only_if_it_is_decorated_too() -> None:
    class Inheriting(Payment):
        pass

    with pytest.raises(InvalidDefinition, match="only inherits"):
        task_definition(Inheriting)
    with pytest.raises(InvalidDefinition, match="only inherits"):
        task_definition(Inheriting("visa"))
    decorated = task("shop.inherited")(Inheriting)
    assert task_definition(decorated).kind == "shop.inherited"
    assert task_definition(Payment).kind == "shop.payment"


def test_the_input_is_strict_json_and_comes_back() -> None:
    stored = PAYMENT.encode_input(Payment("visa", 3))
    assert stored == {"card": "visa", "amount": 3}
    assert PAYMENT.decode_input(stored) == Payment("visa", 3)
    assert PAYMENT.decode_input_bytes(b'{"card":"visa"}') == Payment("visa", 1)


@pytest.mark.parametrize(
    ("card", "amount", "path"), [(5, 1, "/card"), ("visa", True, "/amount"), ("visa", 1.0, "/amount")]
)
def test_an_input_of_another_type_is_refused_with_its_path(card: Any, amount: Any, path: str) -> None:
    with pytest.raises(InvalidValue, match=r"task shop\.payment") as caught:
        PAYMENT.encode_input(Payment(card, amount))
    assert caught.value.path == path


def test_a_stored_input_with_unknown_keys_is_refused() -> None:
    with pytest.raises(InvalidValue):
        PAYMENT.decode_input({"card": "visa", "pin": 1234})


@pytest.mark.parametrize("kind", ["", "a/b", 5, None])
def test_a_kind_that_is_no_name_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidDefinition, match="name"):
        task(kind)


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, None])
def test_a_version_that_is_no_whole_number_from_one_is_refused(version: Any) -> None:
    with pytest.raises(InvalidDefinition, match="versions"):
        task("shop.x", version=version)


async def _begin(self: Any, run: Any) -> Next[Any]:
    return run.complete()  # type: ignore[no-any-return]


async def _second(self: Any, run: Any) -> Next[Any]:
    return run.complete()  # type: ignore[no-any-return]


async def _no_run(self: Any) -> Next[Any]:
    return Next()


def _migrate(stored: Any) -> Any:
    return stored


async def _async_migrate(stored: Any, from_version: int) -> Any:
    return stored


BAD_CLASSES: list[tuple[dict[str, Any], str]] = [
    ({}, "exactly one .* it has 0"),
    ({"begin": phase(_second)}, "exactly one .* it has 0"),
    ({"begin": phase(first=True)(_begin), "second": phase(first=True)(_second)}, "it has 2: begin, second"),
    ({"abort": "a text"}, "abort is"),
    ({"abort": phase(_second)}, "abort is"),
    ({"abort": _no_run}, "abort is"),
    ({"abort": lambda self, run: None}, "abort is"),
    ({"migrate": _migrate}, "staticmethod"),
    ({"migrate": classmethod(_migrate)}, "staticmethod"),
    ({"migrate": staticmethod(_migrate)}, "staticmethod"),
    ({"migrate": staticmethod(_async_migrate)}, "no async def"),
    ({"__annotations__": {"card": bytes}}, r"Broken\.card.*bytes"),
    ({"__annotations__": {"cards": list[set[int]]}}, r"Broken\.cards"),
    ({"__annotations__": {"begin": int}}, "begin is a field and a method"),
    ({"__annotations__": {"abort": int}}, "abort is a field and a method"),
    ({"__annotations__": {"a": list[int]}, "a": []}, r"Broken\): mutable default"),
    ({"__annotations__": {"a": int, "b": int}, "a": 1}, r"Broken\): non-default argument"),
]


@pytest.mark.parametrize(("body", "message"), BAD_CLASSES)
def test_a_class_that_cannot_be_a_task_is_refused_when_decorated(body: dict[str, Any], message: str) -> None:
    first = {} if "begin" in body or not body else {"begin": phase(first=True)(_begin)}
    broken = type("Broken", (), {**first, **body})
    with pytest.raises(InvalidDefinition, match=message) as caught:
        task("shop.broken")(broken)
    assert "shop.broken" in str(caught.value)


def test_two_names_for_one_phase_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match="same phase"):

        @task("shop.twice")
        class Twice:
            @phase(first=True)
            async def begin(self, run: Any) -> Next[Any]:
                return Next()

            @phase
            async def other(self, run: Any) -> Next[Any]:
                return Next()

            again = other


def test_phases_are_inherited() -> None:
    class Shared:
        @phase
        async def shared(self, run: Any, n: int) -> Next[Any]:
            return Next()

    @task("shop.mixed")
    class Mixed(Shared):
        @phase(first=True)
        async def begin(self, run: Any) -> Next[Any]:
            return Next()

    definition = task_definition(Mixed)
    assert definition.checkpoint(Mixed().shared, (1,), {}) == Checkpoint("shared", {"n": 1})


def test_an_input_may_name_what_is_defined_later() -> None:
    """`Late` stands below: the codec is made when it is first needed."""
    definition = task_definition(_Early)
    assert definition.encode_input(_Early([Late(1)])) == {"items": [{"n": 1}]}
    assert definition.phase("later").encode((Late(2),), {}) == {"late": {"n": 2}}


@task("shop.early")
class _Early:
    items: list["Late"]

    @phase(first=True)
    async def begin(self, run: "NeverDefined") -> Next[Any]:  # type: ignore[name-defined]  # noqa: F821
        return Next()

    @phase
    async def later(self, run: Any, late: "Late") -> Next["Late"]:
        return Next()


@dataclasses.dataclass
class Late:
    """Defined after the task that names it."""

    n: int


def test_a_name_that_never_comes_is_an_error_when_it_is_needed() -> None:
    @task("shop.missing")
    class Missing:
        @phase(first=True)
        async def begin(self, run: Any) -> Next[Any]:
            return Next()

        @phase
        async def later(self, run: Any, x: "Nowhere") -> Next[Any]:  # type: ignore[name-defined]  # noqa: F821
            return Next()

    with pytest.raises(InvalidDefinition, match=r"Missing\.later: .*Nowhere"):
        task_definition(Missing).phase("later").encode((1,), {})


def test_an_unknown_phase_is_an_error_that_names_the_task() -> None:
    with pytest.raises(InvalidDefinition, match=r"shop\.payment has no phase 'gone'"):
        PAYMENT.phase("gone")


async def test_a_checkpoint_is_bound_to_the_code_it_names() -> None:
    payment = Payment("visa")
    checkpoint = PAYMENT.checkpoint(payment.review, (Receipt(4),), {"extra": {"a": [1]}})
    assert checkpoint == Checkpoint("review", {"receipt": {"number": 4, "note": None}, "extra": {"a": [1]}})
    code, arguments = PAYMENT.bind(payment, checkpoint)
    assert code.__self__ is payment  # type: ignore[attr-defined]
    assert arguments == {"receipt": Receipt(4), "extra": {"a": [1]}}


def test_only_phases_of_the_same_task_make_a_checkpoint() -> None:
    with pytest.raises(InvalidValue, match=r"Stock\.count is a phase of another task"):
        PAYMENT.checkpoint(Stock().count, (), {})
    for wrong in (Payment.charge, Payment("visa").abort, "charge", None):
        with pytest.raises(InvalidValue, match="not a phase"):
            PAYMENT.checkpoint(wrong, (), {})


def test_a_phase_of_another_task_is_refused_though_it_has_the_same_name() -> None:
    @task("shop.double")
    class Double:
        @phase(first=True)
        async def charge(self, run: Any, attempt: int = 1) -> Next[Any]:
            return Next()

    with pytest.raises(InvalidValue, match=r"Double\.charge is a phase of another task"):
        PAYMENT.checkpoint(Double().charge, (), {})


def test_a_phase_that_a_subclass_replaced_is_another_phase() -> None:
    class Changed(Payment):
        @phase
        async def other(self, run: Any) -> Next[Any]:
            return Next()

    with pytest.raises(InvalidValue, match="another task"):
        PAYMENT.checkpoint(Changed("visa").other, (), {})


# results


def test_the_result_has_the_type_that_the_task_names() -> None:
    assert PAYMENT.encode_result(Receipt(1, "x")) == {"number": 1, "note": "x"}
    for wrong in ("x", None, {"number": 1}, Receipt(True)):
        with pytest.raises(InvalidValue, match=r"result of task shop\.payment"):
            PAYMENT.encode_result(wrong)


def _with_results(*annotations: Any, base: tuple[Any, ...] = ()) -> Any:
    body: dict[str, Any] = {}
    for number, annotation in enumerate(annotations):

        async def code(self: Any, run: Any) -> Any:
            return Next()

        code.__name__ = f"p{number}"
        code.__annotations__["return"] = annotation
        body[code.__name__] = phase(first=number == 0)(code)
    if base:
        body["__orig_bases__"] = base
    return task_definition(task("shop.results")(type("Results", (Task,) if base else (), body)))


def test_results_are_of_the_types_that_the_phases_name() -> None:
    definition = _with_results(Next[Receipt], Next[str], Next[Never])
    assert definition.encode_result(Receipt(1)) == {"number": 1, "note": None}
    assert definition.encode_result("text") == "text"
    with pytest.raises(InvalidValue):
        definition.encode_result(5)


@pytest.mark.parametrize("annotations", [(Next,), (Next[Any],), (Any,), (Next[str], Next[Any]), (Next[Never],)])
def test_without_a_named_type_any_json_is_a_result(annotations: tuple[Any, ...]) -> None:
    definition = _with_results(*annotations)
    assert definition.result_codecs == ()
    assert definition.encode_result({"a": [1, None]}) == {"a": [1, None]}
    assert definition.encode_result(Receipt(1)) == {"number": 1, "note": None}
    assert definition.encode_result(None) is None
    for wrong in (float("nan"), {"a": b""}, {1: 2}, object()):
        with pytest.raises((InvalidValue, InvalidDefinition)):
            definition.encode_result(wrong)


def test_the_class_decides_over_its_phases() -> None:
    definition = _with_results(Next[Any], base=(Task[int],))
    assert definition.encode_result(5) == 5
    with pytest.raises(InvalidValue):
        definition.encode_result("five")


def test_a_result_of_the_annotation_none_is_none() -> None:
    definition = _with_results(Next[None])
    assert definition.encode_result(None) is None
    with pytest.raises(InvalidValue):
        definition.encode_result("x")


def test_a_result_is_stored_as_it_was_and_not_changed_later() -> None:
    value = {"a": [1]}
    stored = task_definition(Stock).encode_result(value)
    value["a"].append(2)
    assert stored == {"a": [1]}


def test_constraints_of_the_annotation_hold_for_results() -> None:
    definition = _with_results(Next[Annotated[int, msgspec.Meta(ge=0)]])
    assert definition.encode_result(0) == 0
    with pytest.raises(InvalidValue):
        definition.encode_result(-1)


def test_a_result_that_json_cannot_hold_is_refused_when_decorated() -> None:
    with pytest.raises(InvalidDefinition, match=r"result of task shop\.results"):
        _with_results(Next[bytes])


def test_a_task_may_migrate() -> None:
    @task("shop.migrating", version=2)
    class Migrating:
        @phase(first=True)
        async def begin(self, run: Any) -> Next[Any]:
            return Next()

        @staticmethod
        def migrate(stored: StoredTask, from_version: int) -> StoredTask:
            return stored

    assert task_definition(Migrating).migrate is not None
