"""What tools return, as results that can be stored."""

import dataclasses
from typing import Any

import pytest

from perdure.base.errors import InvalidValue
from perdure.base.ids import TaskId
from perdure.extensions.results import (
    DETAILS_BYTES,
    RESULT_BYTES,
    UNSET,
    Sleep,
    Terminate,
    ToolError,
    ToolResult,
    Wait,
    bounded_text,
    normalized,
)
from perdure.models.messages import Attachment, Text, Usage


@dataclasses.dataclass
class Report:
    ok: bool
    lines: list[str]


@pytest.mark.parametrize(
    ("value", "returns", "expected"),
    [
        ("done", None, ToolResult("done")),
        ("half \ud83d", None, ToolResult("half \ufffd")),
        (None, None, ToolResult("")),
        (7, int, ToolResult("7", structured=7)),
        (True, bool, ToolResult("true", structured=True)),
        ({"a": [1]}, None, ToolResult('{"a":[1]}', structured={"a": [1]})),
        ([], list[int], ToolResult("[]", structured=[])),
        (
            Report(True, ["x"]),
            Report,
            ToolResult('{"ok":true,"lines":["x"]}', structured={"ok": True, "lines": ["x"]}),
        ),
    ],
)
def test_ordinary_values_become_results(value: Any, returns: Any, expected: ToolResult) -> None:
    assert normalized(value, returns) == expected


@pytest.mark.parametrize("park", [Sleep(until=5.0), Wait(on=[TaskId(1)], policy="any")])
def test_parks_pass_as_they_are(park: Any) -> None:
    assert normalized(park, None) is park


@pytest.mark.parametrize(
    ("value", "returns"),
    [
        (object(), None),
        (Report(True, []), None),
        (float("nan"), float),
        ({1: 2}, None),
        (b"", None),
        ({"ok": True, "lines": []}, Report),
        (1.5, int),
    ],
)
def test_what_cannot_be_stored_is_refused(value: Any, returns: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^the tool's result"):
        normalized(value, returns)


def test_a_result_is_made_well_formed_in_all_its_parts() -> None:
    image = Attachment("sha256:1", "image/png")
    given = ToolResult(
        [Text("half \ud83d"), image],
        is_error=True,
        details={"a": 1},
        diagnostics=["half \ud83d"],
        usage=Usage(input=1, cost=0.5),
        control=Terminate(),
    )
    assert normalized(given, None) == ToolResult(
        [Text("half \ufffd"), image],
        is_error=True,
        details={"a": 1},
        diagnostics=["half \ufffd"],
        usage=Usage(input=1, cost=0.5),
        control=Terminate(),
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (ToolResult(7), "content is text or a list of blocks, not int"),  # type: ignore[arg-type]
        (ToolResult(["x"]), "blocks are Text and Attachment, not str"),  # type: ignore[list-item]
        (ToolResult("", details={"a": {1}}), "a set is not JSON at /details/a"),
        (ToolResult("", diagnostics="one text"), "diagnostics are a list"),  # type: ignore[arg-type]
        (ToolResult("", usage=Usage(input=-1)), "counts tokens and USD from 0"),
        (ToolResult("", usage=Usage(cost=float("nan"))), "counts tokens and USD from 0"),
        (ToolResult("", usage={"input": 1}), "counts tokens and USD from 0"),  # type: ignore[arg-type]
        (ToolResult("", control="terminate"), r"control is .*, not str"),  # type: ignore[arg-type]
    ],
)
def test_a_result_with_a_wrong_part_is_refused_naming_it(given: ToolResult, text: str) -> None:
    with pytest.raises(InvalidValue, match=text):
        normalized(given, None)


def test_a_text_within_the_bound_is_left_alone_and_a_larger_one_says_what_is_missing() -> None:
    whole = "ä" * (RESULT_BYTES // 2)
    assert bounded_text(whole) is whole
    cut = bounded_text("a" + whole + "z")
    assert cut.startswith("aä")
    assert cut.endswith("äz")
    kept = sum(len(line.encode()) for line in (cut.partition("\n")[0], cut.rpartition("\n")[2]))
    assert kept <= RESULT_BYTES
    assert f"\n[{RESULT_BYTES + 2 - kept} bytes of this result were left out" in cut


def test_values_that_are_too_large_for_uis_are_left_out() -> None:
    large = ["x" * DETAILS_BYTES]
    found = normalized(large, list[str])
    assert isinstance(found, ToolResult)
    assert found.structured is None
    found = normalized(ToolResult("", details=large), None)
    assert isinstance(found, ToolResult)
    assert found.details == {"left_out_bytes": DETAILS_BYTES + 4}


def test_a_tool_error_is_exactly_its_text() -> None:
    assert str(ToolError("no such branch")) == "no such branch"
    assert repr(UNSET) == "UNSET"
