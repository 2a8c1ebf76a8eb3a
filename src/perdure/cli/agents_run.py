"""`perdure agents list` and `run`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from perdure.base.errors import InvalidValue
from perdure.base.text import printable
from perdure.cli.agents_kit import Strict, as_json, client, request_id, text_of, told, wait_for, wait_ms
from perdure.subagents.discovery import discover
from perdure.subagents.intake.run import check_agents
from perdure.subagents.spec import check_labels, parse_run


@click.command("list", cls=Strict)
@click.option("--cwd", default=".", help="The folder whose agents count.")
@as_json
def list_(cwd: str, as_json: bool) -> None:
    """List the agents that can be named here."""
    found = discover(cwd)
    if as_json:
        agents = [
            {"name": one.name, "description": one.description, "model": one.model, "source": one.source}
            for one in found.agents.values()
        ]
        problems = [{"path": one.path, "problem": one.problem} for one in found.diagnostics]
        click.echo(json.dumps({"agents": agents, "problems": problems}, ensure_ascii=False))
        return
    for agent in found.agents.values():
        model = f" ({agent.model})" if agent.model else ""
        click.echo(printable(f"{agent.name}{model} [{agent.source}]  {agent.description}"))
    for one in found.diagnostics:
        click.echo(printable(f"problem: {one.problem}"), err=True)


@click.command("run", cls=Strict)
@click.option("--agent", help="Who does it.")
@click.option("--task", help="What is to be done; @file reads a file.")
@click.option("--key", help="The call's name in its workflow.")
@click.option("--spec", "spec_file", help="A JSON file with the run (- reads standard input).")
@click.option("--workflow", help="A workflow script.")
@click.option("--args", "args_json", help="The script's arguments, as JSON.")
@click.option("--name", help="A name for lists.")
@click.option("--model", help="provider/id")
@click.option("--cwd", default=".", help="Where it works, and what paths count from.")
@click.option("--labels", help="key=value, several with commas; or a JSON object.")
@click.option("--session", help="A session whose list shows the run.")
@request_id
@wait_ms
@as_json
def run(
    spec_file: str | None,
    labels: str | None,
    session: str | None,
    request: str | None,
    wait_ms: int,
    as_json: bool,
    cwd: str,
    args_json: str | None,
    task: str | None,
    **given: Any,
) -> int:
    """Start one subagent, a list, a chain, or a workflow script. Returns once it is accepted."""
    body: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if task is not None:
        body["task"] = text_of(task)
    if args_json is not None:
        body["args"] = _json(args_json, "--args")
    if spec_file is not None:
        body = {**_spec(spec_file), **body}
    body["cwd"] = os.path.abspath(os.path.join(cwd, str(body.get("cwd", "."))))
    launch = parse_run(body, body["cwd"])
    sender = client(listed=session)
    known = None if request is None else wait_for(sender.known(request))
    if known is None:
        check_agents(launch, discover(launch.cwd))
    if labels is not None:
        body["labels"] = check_labels(_labels(labels))
    return told(wait_for(sender.ask("run", body, request=request, wait=wait_ms / 1000)), as_json)


def _spec(name: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"cannot read {name!r}: {error}") from error
    found = _json(text, name)
    if not isinstance(found, dict):
        raise InvalidValue(f"{name}: a run is an object")
    for field in ("request", "labels"):
        if field in found:
            raise InvalidValue(f"{name}: {field} is an option of the command, not part of the spec")
    if found.pop("action", "run") != "run":
        raise InvalidValue(f"{name}: only the action run")
    return found


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidValue(f"{where} is no JSON: {error}") from error


def _labels(text: str) -> Any:
    if text.lstrip().startswith("{"):
        return _json(text, "--labels")
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise InvalidValue(f"not a label: {part!r}", hint="--labels issue=7,branch=main")
        found[name.strip()] = value.strip()
    return found
