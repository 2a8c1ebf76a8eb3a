"""`perdure agents smoke`: whether this machine can run subagents. Offline, in temporary folders."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from perdure import Harness, StorageInUse
from perdure.env.containment import end_marked
from perdure.subagents.engine.scripts import Begin, Returned
from perdure.subagents.evaluator.process import ProcessEvaluators
from perdure.subagents.processes import is_running, me, start_time

MARK = "PERDURE_SMOKE"


@click.command("smoke")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def smoke(as_json: bool) -> int:
    """Check that this machine can run subagents: offline, under a minute."""
    checks: dict[str, Callable[[], str]] = {
        "processes are told apart": _processes,
        "a marked process is found and ended": _fence,
        "a store survives a reopening and has one owner": _store,
        "a script runs closed in": _script,
        "a host starts": _host,
    }
    results = []
    for name, check in checks.items():
        began = time.monotonic()
        try:
            problem = check()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        results.append({"check": name, "ok": not problem, "problem": problem, "seconds": time.monotonic() - began})
    gap = "none: commands run below a reaper of their own, and hosts carry a mark"
    if as_json:
        click.echo(json.dumps({"ok": all(one["ok"] for one in results), "checks": results, "gap": gap}))
    else:
        for one in results:
            click.echo(
                f"{'ok  ' if one['ok'] else 'FAIL'}  {one['check']}" + (f": {one['problem']}" if one["problem"] else "")
            )
    return 0 if all(one["ok"] for one in results) else 1


def _processes() -> str:
    pid, started = me()
    return "" if started and is_running(pid, started) else "/proc cannot be read: subagents need Linux"


def _fence() -> str:
    mark = f"smoke-{os.getpid()}"
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: mark}, start_new_session=True)
    started = start_time(child.pid)
    left = end_marked(MARK, mark)
    child.wait(5)
    return "" if not left and not is_running(child.pid, started) else f"these do not end: {left}"


def _store() -> str:
    async def check(path: Path) -> str:
        async with Harness.open(path) as harness:
            await harness.root(model="none:none")
            try:
                async with Harness.open(path):
                    return "two owners"
            except StorageInUse:
                pass
        async with Harness.open(path) as harness:
            return "" if (await (await harness.root()).agent()).model == "none:none" else "what was stored is gone"

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(check(Path(folder) / "smoke.db"))


def _script() -> str:
    async def check() -> str:
        evaluator = await ProcessEvaluators().start("python", "smoke")
        try:
            await evaluator.say(Begin(source="return 6 * 7", path="smoke"))
            said = await evaluator.hear()
            return "" if isinstance(said, Returned) and said.value == 42 else str(said)
        finally:
            await evaluator.close()

    return asyncio.run(check())


def _host() -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import perdure.subagents.host.process"], capture_output=True, text=True, timeout=30
    )
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
