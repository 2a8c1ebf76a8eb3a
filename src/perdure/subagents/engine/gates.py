"""One command that judges a result before it stands."""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure import Error
from perdure.env.local import LocalEnv
from perdure.subagents.engine.processes import CALL_VARIABLE, EXECUTION_VARIABLE
from perdure.subagents.paths import HOME_VARIABLE, StateRoot
from perdure.subagents.schema import check_value
from perdure.subagents.state import Call

GATE_SECONDS: Final = 600.0
SHOWN: Final = 2000


class Gate(msgspec.Struct, kw_only=True):
    """What is run for a result."""

    command: str
    json: bool
    schema: Any
    seconds: float
    """After so long it is ended."""
    for_call: bool
    """It is the call's own limit that ends it then."""
    result: dict[str, Any]
    tag: str
    cwd: str
    name: str


def gate_of(call: Call, result: dict[str, Any], *, tag: str, cwd: str, name: str) -> Gate:
    """The gate of a call's spec. Its time is active time of the call, so what is left of that bounds it too."""
    spec = call.spec["gate"]
    given: dict[str, Any] = {"command": spec} if isinstance(spec, str) else spec
    seconds = given["timeoutMs"] / 1000 if "timeoutMs" in given else GATE_SECONDS
    limit = call.spec.get("timeoutMs")
    left = float("inf") if limit is None else max(0.001, (limit - call.active_ms) / 1000)
    return Gate(
        command=given["command"], json=given.get("output") == "json", schema=given.get("schema", True),
        seconds=min(seconds, left), for_call=left < seconds, result=result, tag=tag, cwd=cwd, name=name,
    )  # fmt: skip


async def run_gate(root: StateRoot, gate: Gate) -> dict[str, Any]:
    """Run it in the call's place; returns the result as it stands after that. Its processes carry `tag`."""
    try:
        return await _run(root, gate)
    except (OSError, Error) as error:
        return _failed(gate.result, f"the gate could not be run: {error}")


async def _run(root: StateRoot, gate: Gate) -> dict[str, Any]:
    result = gate.result
    with tempfile.TemporaryDirectory(prefix="perdure-gate-") as scratch:
        folder = Path(scratch)
        result_file, output_file = folder / "result.json", folder / "output.txt"
        result_file.write_text(json.dumps(result), "utf-8")
        output_file.write_text(str(result.get("output", "")), "utf-8", "surrogatepass")
        env = {
            EXECUTION_VARIABLE: gate.tag, CALL_VARIABLE: gate.name.rpartition("@")[0],
            "PERDURE_RESULT": str(result_file), "PERDURE_OUTPUT": str(output_file), HOME_VARIABLE: str(root.path),
        }  # fmt: skip
        execution = await LocalEnv(gate.cwd).exec(gate.command, env=env, timeout=gate.seconds)
        said = bytearray()
        async for chunk in execution:
            if chunk.stream == "stdout":
                said += chunk.data
        ended = await execution.wait()
    if ended.timed_out and gate.for_call:
        return {**result, "status": "timeout", "error": "timeout"}
    if ended.timed_out:
        return _failed(result, f"the gate took longer than {gate.seconds:g} s")
    if ended.code != 0:
        tail = said.decode("utf-8", "replace")[-SHOWN:].strip()
        return _failed(result, f"the gate ended with {ended.code}" + (f": {tail}" if tail else ""))
    return _judged(result, gate, bytes(said)) if gate.json else result


def _judged(result: dict[str, Any], gate: Gate, said: bytes) -> dict[str, Any]:
    try:
        value = json.loads(said)
    except ValueError as error:
        return _failed(result, f"the gate printed no JSON: {error}")
    problems = check_value(gate.schema, value)
    if problems:
        return _failed(result, "the gate's JSON does not fit: " + "; ".join(problems))
    data = result.get("data")
    return {**result, "data": {**(data if isinstance(data, dict) else {}), "gate": value}}


def _failed(result: dict[str, Any], error: str) -> dict[str, Any]:
    return {**result, "status": "gate-failed", "error": error}
