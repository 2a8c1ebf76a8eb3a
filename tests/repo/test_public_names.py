"""What a user may import, and from where."""

import importlib

import pytest

import perdure
from perdure.base.errors import Error

PROMISED = {
    "perdure": """Add Answer Block Busy DAY Document Error Extension HOUR Harness HookContext InvalidDecision MINUTE
        Next Outcome Registry Remove RequestConflict SectionContext Settings Settled Signal SignalState Sleep
        StorageInUse SubmissionSettled StoredTask Task TaskRun ToolCall ToolContext ToolError ToolResult
        UNSET Unanswered Wait Wake WakeReason Compacted Compaction CompactionPlan
        CompactionSettings document_family entry phase plain task""",
    "perdure.events": "AnyEvent EventStream MessageEnd MessageUpdate RunEnd Snapshot ToolEnd TurnEnd fold_entries",
    "perdure.tools": "PersonAnswer PersonReply Question approvals ask ask_person coding_tools history_tools",
    "perdure.wakes": "Expired Signalled Tasks Time WakeReason",
    "perdure.testing": "FakeClock ScriptedModel crash env_conformance storage_conformance",
}


@pytest.mark.parametrize("module", PROMISED)
def test_promised_names_can_be_imported(module: str) -> None:
    for name in PROMISED[module].split():
        try:
            getattr(importlib.import_module(module), name)
        except AttributeError:
            importlib.import_module(f"{module}.{name}")


def test_every_exported_name_is_there_once() -> None:
    names = perdure.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(perdure, name) for name in names)


def errors(kind: type[Error]) -> list[type[Error]]:
    """An error's class and all below it."""
    return [kind, *(leaf for below in kind.__subclasses__() for leaf in errors(below))]


def test_each_error_has_a_code_of_its_own() -> None:
    own = [kind for kind in errors(Error) if kind.__module__.startswith("perdure.")]
    codes = [kind.__dict__.get("code") for kind in own]
    assert None not in codes
    assert len(set(codes)) == len(codes)
