"""Starting evaluators, and talking to them."""

import asyncio
import contextlib
import importlib.util
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Final, Literal

import msgspec

from perdure import Error
from perdure.subagents.engine.script_task import decoded
from perdure.subagents.engine.scripts import Evaluator, EvaluatorGone, FromScript, Limited, ToScript

CPU_SECONDS: Final = 2
"""Of one stretch; waiting costs nothing."""
LINE_BYTES: Final = 64 * 1024 * 1024
CHILDREN: Final = {
    "python": "perdure.subagents.evaluator.python_child",
    "javascript": "perdure.subagents.evaluator.javascript_child",
}
START: Final = """
import sys, types
for name, path in {packages!r}:
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [path]
from {child} import main
main()
"""
"""Finds the child without running what its packages hold: it shall start quickly, and have nothing of ours."""
START_SECONDS: Final = 20.0


class NoJavaScript(Error):
    """JavaScript workflow scripts need the V8 engine."""

    code = "no_javascript"


class ProcessEvaluators:
    """Evaluators as processes of this one."""

    async def start(self, language: Literal["python", "javascript"], name: str) -> Evaluator:
        """Start one. Its environment is empty, and it belongs to no call: nothing of ours can be reached from it."""
        if language == "javascript" and not _has_v8():
            raise NoJavaScript("JavaScript scripts need mini-racer", hint="pip install 'perdure[javascript]'")
        isolated = ["-I", "-S"] if language == "python" else ["-I"]
        here = Path(__file__).parent
        packages = [
            ("perdure", str(here.parent.parent)),
            ("perdure.subagents", str(here.parent)),
            ("perdure.subagents.evaluator", str(here)),
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *isolated,
            "-c",
            START.format(packages=packages, child=CHILDREN[language]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"},
            cwd="/",
            limit=LINE_BYTES,
            start_new_session=True,
        )
        return ProcessEvaluator(process)


class ProcessEvaluator:
    """One incarnation of a script."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def say(self, line: ToScript) -> None:
        """Give it processor time for one stretch, and the line that begins it. Raises `EvaluatorGone`."""
        self._allow()
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(msgspec.json.encode(line) + b"\n")
            await stdin.drain()
        except (ConnectionError, BrokenPipeError) as error:
            raise EvaluatorGone("the evaluator does not listen") from error

    async def hear(self) -> FromScript:
        """The next line; `Limited` where it was ended for taking too much. Raises `EvaluatorGone`."""
        stdout = self._process.stdout
        assert stdout is not None
        try:
            line = await stdout.readline()
        except ValueError as error:
            raise EvaluatorGone(f"a line of more than {LINE_BYTES} bytes") from error
        if line:
            try:
                found: FromScript = decoded(line)
            except msgspec.MsgspecError as error:
                raise EvaluatorGone(f"it does not speak our language: {error}") from error
            return found
        code = await self._process.wait()
        if code == -signal.SIGXCPU:
            return Limited(what=f"processor time: {CPU_SECONDS} s in one stretch")
        raise EvaluatorGone(f"the evaluator ended with {code}")

    async def close(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()

    def _allow(self) -> None:
        """Processor time is limited from outside, and counts from now."""
        with contextlib.suppress(OSError):
            limit = _used_seconds(self._process.pid) + CPU_SECONDS + 1
            resource.prlimit(self._process.pid, resource.RLIMIT_CPU, (limit, limit + CPU_SECONDS))


def _used_seconds(pid: int) -> int:
    """Processor seconds that a process took so far; proc(5), fields 14 and 15 of stat."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


def _has_v8() -> bool:
    return importlib.util.find_spec("py_mini_racer") is not None
