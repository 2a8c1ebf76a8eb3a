"""The tasks that come with the harness: what the decorator leaves to their first use, to keep the start short."""

import pytest

from perdure.base.lazy import load
from perdure.harness.opening import BUILTIN_TASKS
from perdure.tasks.definition import task_definition
from perdure.tasks.phases import Phase


@pytest.mark.parametrize("kind", BUILTIN_TASKS)
def test_json_can_hold_the_input_the_results_and_the_arguments_of_every_phase(kind: str) -> None:
    held = BUILTIN_TASKS[kind]
    definition = task_definition(load(held)) if isinstance(held, str) else held
    assert definition.kind == kind
    assert definition.codec.schema()
    assert isinstance(definition.result_codecs, tuple)
    phases = [found for name in dir(definition.cls) if isinstance(found := getattr(definition.cls, name), Phase)]
    assert phases
    for phase in phases:
        assert set(phase.arguments()) == set(
            phase.function.__code__.co_varnames[2 : phase.function.__code__.co_argcount]
        )
