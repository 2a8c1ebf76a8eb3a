"""What a decision is: applied with a reply, or rejected with a reason that says what would work."""

from typing import Any

from perdure import InvalidValue, TaskTransaction
from perdure.subagents import rows
from perdure.subagents.names import Address, call_of, parse_address
from perdure.subagents.state import Call, Request, RequestDoc, TombstoneDoc, Workflow, WorkflowDoc

Reply = dict[str, Any]


class Rejected(Exception):
    """The request is decided: refused. Nothing else of it is stored."""

    def __init__(self, reason: str, **details: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = details


class UnknownWorkflow(Rejected):
    """Nothing is known under that name, unless a run of it is on its way."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no workflow {name!r:.200}")
        self.name = name


class NotYet(Exception):
    """It cannot be decided now, and is taken up again: what it needs has not come, or the machine is short of
    something."""


async def target_workflow(tx: TaskTransaction, text: Any) -> Workflow:
    """The workflow of a wid, or of the request id of a run; `@` and a revision mean that one. Raises `Rejected`."""
    address = address_of(text)
    if address.key is not None:
        raise Rejected(f"{text} is a call: this is for a workflow, {address.workflow}")
    return await _revision(tx, address)


async def _revision(tx: TaskTransaction, address: Address) -> Workflow:
    workflow = await _workflow(tx, address.workflow)
    if address.revision not in (None, workflow.revision):
        raise Rejected("stale-revision", revision=workflow.revision)
    return workflow


async def _workflow(tx: TaskTransaction, name: str) -> Workflow:
    found = await rows.workflow(tx, name)
    if found is not None:
        return found
    if await rows.read(tx, TombstoneDoc, name) is not None:
        raise Rejected(f"workflow {name} was pruned")
    request = await rows.read(tx, RequestDoc, name)
    if request is None or request.kind != "run":
        raise UnknownWorkflow(name)
    if request.wid is None:
        raise Rejected(f"the run {name} was rejected: {request.reply.get('reason', '')}")
    return await _workflow(tx, request.wid)


async def target_call(tx: TaskTransaction, text: str) -> tuple[Workflow, Call]:
    """The call of `<wid>/<key>`, or the only one of a workflow. Raises `Rejected`."""
    address = address_of(text)
    workflow, key = await _revision(tx, address), address.key
    if key is None:
        if len(workflow.calls) != 1:
            raise Rejected(f"{workflow.wid} has {len(workflow.calls)} calls: name one", targets=addresses(workflow))
        key = workflow.calls[0]
    call = await rows.call(tx, workflow.wid, key)
    if call is None:
        if key in workflow.skipped:
            raise Rejected(f"{call_of(workflow.wid, key)} was skipped and never started")
        raise Rejected(f"{workflow.wid} has no call {key!r:.200}", targets=addresses(workflow))
    if address.generation not in (None, call.generation):
        raise Rejected(f"{text} is not the newest generation: that is {call.generation}", generation=call.generation)
    return workflow, call


def addresses(workflow: Workflow) -> list[str]:
    """What a send to this workflow may name."""
    return [call_of(workflow.wid, key) for key in workflow.calls]


def address_of(text: Any) -> Address:
    """What a text names. Raises `Rejected`."""
    try:
        return parse_address(text)
    except (TypeError, InvalidValue) as error:
        raise Rejected(f"not an address: {text!r:.200}") from error


async def live_workflows(tx: TaskTransaction, kind: Any) -> list[Workflow]:
    """The rows behind an index of wids."""
    found = [await rows.read(tx, WorkflowDoc, wid) for wid in await rows.keys(tx, kind)]
    return [row for row in found if row is not None]


def is_decided(request: Request | None) -> bool:
    return request is not None and request.decided is not None
