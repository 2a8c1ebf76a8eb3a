"""What decisions need of the engine that runs workflows. All of it happens in the decision's commit."""

from typing import Any, Protocol

from perdure import TaskTransaction
from perdure.subagents.state import Call, Workflow


class Engine(Protocol):
    """Filled by `perdure.subagents.engine`."""

    async def start_workflow(self, tx: TaskTransaction, workflow: Workflow) -> None:
        """Create the workflow's task; the row and its pins are stored in the same commit."""
        ...

    async def open_generation(
        self, tx: TaskTransaction, workflow: Workflow, call: Call, *, opening: str, request: str, model: str | None
    ) -> int:
        """Open the next generation of a sealed call; returns its number. Stores both rows."""
        ...

    async def stop_call(self, tx: TaskTransaction, workflow: Workflow, call: Call) -> None:
        """Mark the call's generation for its end as `stopped`."""
        ...

    async def stop_workflow(self, tx: TaskTransaction, workflow: Workflow) -> None:
        """Mark the workflow and all that is open in it for the end as `stopped`."""
        ...

    async def hold(self, tx: TaskTransaction, workflow: Workflow, *, fence: bool) -> None:
        """Dispatch nothing more of it; with `fence` what runs is cut off too, unsealed."""
        ...

    async def release(self, tx: TaskTransaction, workflow: Workflow) -> None:
        """Dispatch again, and go on with a parked one."""
        ...

    def known_model(self, model: str) -> str:
        """The full name of a model. Raises `Rejected` with `unknown-model` or `pool-unavailable`."""
        ...

    async def reserve_model(self, tx: TaskTransaction, call: Call, model: str) -> str:
        """Choose the model of a switch and reserve its slot; returns the one chosen. Raises `Rejected` with
        `unknown-model`, `provider-full`, `switch-pending` or `call-starting`."""
        ...

    async def revise(self, tx: TaskTransaction, workflow: Workflow, pins: Any) -> None:
        """Begin the next revision with these pins; what runs of the old one is retired."""
        ...
