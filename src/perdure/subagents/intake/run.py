"""Runs: what they name is pinned first, then workflow, pins and decision are one commit."""

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec

from perdure import InvalidValue, TaskTransaction
from perdure.subagents import rows
from perdure.subagents.agent_files import MissingYaml
from perdure.subagents.digest import request_digest
from perdure.subagents.discovery import Found, discover
from perdure.subagents.events import append_event
from perdure.subagents.intake.decision import NotYet, Rejected, Reply, target_workflow
from perdure.subagents.intake.engine import Engine
from perdure.subagents.names import check_session, new_workflow_id
from perdure.subagents.paths import StateRoot
from perdure.subagents.pins import PinFailed, pin, pin_file, pinned
from perdure.subagents.spec import Launch, agents_named, check_labels, could_use, parse_run
from perdure.subagents.spool import Sent
from perdure.subagents.state import Pins, PinsDoc, Workflow


class Prepared(msgspec.Struct, kw_only=True):
    """What was read for a run before its decision."""

    launch: Launch | None = None
    pins: Pins | None = None
    labels: dict[str, str] = {}
    problem: str | None = None


async def prepare(root: StateRoot, sent: Sent) -> Prepared:
    """Check and pin what a run names. Raises `NotYet` where the machine is short of something."""
    if sent.kind not in ("run", "revise"):
        return Prepared()
    try:
        return await asyncio.to_thread(_prepare, root, sent)
    except (InvalidValue, MissingYaml, PinFailed) as error:
        return Prepared(problem=str(error))
    except OSError as error:
        raise NotYet(f"{error}") from error


def _prepare(root: StateRoot, sent: Sent) -> Prepared:
    body = {name: value for name, value in sent.body.items() if name not in ("labels", "to")}
    labels = check_labels(sent.body.get("labels", {}))
    if sent.listed is not None:
        check_session(sent.listed)
    launch = parse_run(body, "/")
    if not os.path.isdir(launch.cwd):
        raise PinFailed(f"pin-failed: {launch.cwd}: no such folder")
    found = discover(launch.cwd)
    pins = Pins(steps=launch.steps, args=launch.args)
    if launch.form == "script":
        pins.language = launch.language
        if launch.workflow is not None:
            pins.path = str(Path(launch.cwd, launch.workflow))
            pins.script = pin_file(root, Path(pins.path))
        else:
            pins.script = pin(root, str(launch.source).encode())
    pins.inputs = {name: pin_file(root, Path(launch.cwd, path)) for name, path in launch.inputs.items()}
    pins.agents = {name: msgspec.to_builtins(agent) for name, agent in found.agents.items()}
    check_agents(launch, found, _script_of(root, pins))
    pins.warnings = [one.problem for one in found.diagnostics]
    return Prepared(launch=launch, pins=pins, labels=labels)


def _script_of(root: StateRoot, pins: Pins) -> str:
    try:
        return "" if pins.script is None else pinned(root, pins.script).decode()
    except UnicodeDecodeError as error:
        raise PinFailed(f"pin-failed: {pins.path}: a script is a text in UTF-8") from error


def check_agents(launch: Launch, found: Found, script: str = "") -> None:
    """Refuse a run whose steps name an agent that there is not, with those that there are; one that may use an agent
    whose file is broken; and any while settings of agents cannot be read. Raises `InvalidValue`."""
    for one in found.diagnostics:
        if one.settings or (one.name is not None and could_use(launch, launch.source or script, one.name)):
            about = "" if one.name is None else f"the agent {one.name!r} cannot be used: "
            raise InvalidValue(f"{about}{one.problem}")
    for name in agents_named(launch.steps):
        if name not in found.agents:
            raise InvalidValue(f"unknown agent {name!r}; there are: {', '.join(sorted(found.agents))}")


async def decide_run(tx: TaskTransaction, sent: Sent, prepared: Prepared, engine: Engine) -> Reply:
    """Admit a run: its workflow exists from this commit on."""
    if prepared.problem is not None or prepared.launch is None or prepared.pins is None:
        raise Rejected(prepared.problem or "no run")
    launch, now = prepared.launch, tx.now_millis / 1000
    wid = new_workflow_id(now)
    workflow = Workflow(
        wid=wid, request=sent.request, sender=sent.sender, form=launch.form, cwd=launch.cwd, created=now,
        digest=_digest(sent), name=launch.name, origin=sent.origin, listed=sent.listed, labels=prepared.labels,
        budget=launch.budget, max_calls=launch.max_calls or 300,
        planned=len(launch.steps) if launch.form != "script" else None,
    )  # fmt: skip
    await rows.write(tx, PinsDoc, f"{wid}@1", prepared.pins)
    await engine.start_workflow(tx, workflow)
    await append_event(tx, "submitted", workflow=workflow, by=sent.sender, form=launch.form, name=launch.name)
    reply: dict[str, Any] = {"wid": wid}
    if prepared.pins.warnings:
        reply["warnings"] = prepared.pins.warnings
    return reply


async def decide_revise(tx: TaskTransaction, sent: Sent, prepared: Prepared, engine: Engine) -> Reply:
    """The next revision of a workflow; what is finished and unchanged is taken over."""
    if prepared.problem is not None or prepared.launch is None or prepared.pins is None:
        raise Rejected(prepared.problem or "no run")
    workflow = await target_workflow(tx, str(sent.body.get("to", "")))
    if workflow.form != prepared.launch.form:
        raise Rejected(f"it is a {workflow.form}, and a revision keeps that")
    workflow.revision += 1
    await rows.write(tx, PinsDoc, f"{workflow.wid}@{workflow.revision}", prepared.pins)
    await append_event(tx, "revised", workflow=workflow, revision=workflow.revision, by=sent.sender)
    await engine.revise(tx, workflow, prepared.pins)
    return {"wid": workflow.wid, "revision": workflow.revision}


def _digest(sent: Sent) -> str:

    return request_digest(sent.kind, sent.body, sent.targets)
