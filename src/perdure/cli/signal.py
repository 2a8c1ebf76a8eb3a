"""`perdure signal`: deliver a value to a task, whoever has the session open."""

import asyncio
from pathlib import Path
from typing import Any

import click

from perdure.base import jsonvalue
from perdure.base.errors import InvalidValue
from perdure.base.ids import TaskId
from perdure.cli.config import Config, load_config
from perdure.cli.deliver import delivered
from perdure.cli.open import marking
from perdure.cli.session_names import find_session
from perdure.cli.show import piped
from perdure.harness.control import ask_owner
from perdure.harness.signalling import signal_token
from perdure.storage.lock import read_owner
from perdure.tasks.signals import SignalResult


@click.command("signal")
@click.argument("session")
@click.argument("task", type=click.IntRange(min=1))
@click.argument("name")
@click.argument("key")
@click.argument("value", metavar="JSON")
@click.option("--app", help="module:registry that brings the signal, where no process has the session open.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str, task: int, name: str, key: str, value: str, app: str | None, as_json: bool) -> int:
    """Deliver a JSON value to a task under a signal's name and key. `-` reads it from stdin.

    The process that has the session open delivers it; without one it is stored, and the task goes on when somebody goes
    on with the session. The first value for a key stays: another one exits with 3.

    \b
    perdure signal nightly 12 ops.ci-result done '{"status": "passed"}'
    """
    config = load_config()
    path = find_session(config, session)
    result, by = asyncio.run(_signal(config, path, TaskId(task), name, key, read_json(value), app))
    return delivered(result, by, as_json)


def read_json(value: str) -> Any:
    """The value of an argument, or of stdin for `-`. A usage error if it is no strict JSON."""
    text = piped() if value == "-" else value
    try:
        found = jsonvalue.decode(text)
        jsonvalue.check(found)
    except (InvalidValue, ValueError) as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="JSON") from error
    return found


async def _signal(
    config: Config, path: Path, task: TaskId, name: str, key: str, data: Any, app: str | None
) -> tuple[SignalResult, int | None]:
    owner = read_owner(path)
    if owner is not None and owner.get("control"):
        request = {"do": "signal", "task": task, "name": name, "key": key, "data": data}
        told = await ask_owner(str(owner["control"]), request)
        return told["result"], int(told["pid"])
    async with marking(path, config, app=app or config.app) as harness:
        token = signal_token(harness.agent.registry, name)
        async with harness.session.transaction() as tx:
            return await tx.signal_json(task, token, key, data), None
