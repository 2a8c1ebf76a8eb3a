"""One command that judges a result before it stands."""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from perdure.env.local import LocalEnv
from perdure.subagents.engine.context import Orchestration
from perdure.subagents.engine.processes import CALL_VARIABLE, EXECUTION_VARIABLE
from perdure.subagents.schema import check_value

GATE_SECONDS: Final = 600.0
SHOWN: Final = 2000


async def run_gate(
    orchestration: Orchestration, gate: Any, result: dict[str, Any], *, tag: str, cwd: str, call: str
) -> dict[str, Any]:
    """Run it in the call's place; the result as it stands after that. Its processes carry `tag`."""
    given: dict[str, Any] = {"command": gate} if isinstance(gate, str) else gate
    with tempfile.TemporaryDirectory(prefix="perdure-gate-") as scratch:
        folder = Path(scratch)
        result_file, output_file = folder / "result.json", folder / "output.txt"
        result_file.write_text(json.dumps(result), "utf-8")
        output_file.write_text(str(result.get("output", "")), "utf-8")
        env = {
            EXECUTION_VARIABLE: tag, CALL_VARIABLE: call, "PERDURE_RESULT": str(result_file),
            "PERDURE_OUTPUT": str(output_file), "PERDURE_HOME": str(orchestration.root.path),
        }  # fmt: skip
        timeout = given["timeoutMs"] / 1000 if "timeoutMs" in given else GATE_SECONDS
        execution = await LocalEnv(cwd).exec(given["command"], env=env, timeout=timeout)
        said = bytearray()
        async for chunk in execution:
            if chunk.stream == "stdout":
                said += chunk.data
        ended = await execution.wait()
    if ended.timed_out:
        return _failed(result, f"the gate took longer than {timeout:g} s")
    if ended.code != 0:
        tail = said.decode("utf-8", "replace")[-SHOWN:].strip()
        return _failed(result, f"the gate ended with {ended.code}" + (f": {tail}" if tail else ""))
    if given.get("output") != "json":
        return result
    try:
        value = json.loads(said)
    except ValueError as error:
        return _failed(result, f"the gate printed no JSON: {error}")
    problems = check_value(given["schema"], value) if "schema" in given else []
    if problems:
        return _failed(result, "the gate's JSON does not fit: " + "; ".join(problems))
    data = result.get("data")
    return {**result, "data": {**(data if isinstance(data, dict) else {}), "gate": value}}


def _failed(result: dict[str, Any], error: str) -> dict[str, Any]:
    return {**result, "status": "gate-failed", "error": error}
