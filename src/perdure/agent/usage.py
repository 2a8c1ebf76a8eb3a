"""What was spent: each model attempt and each tool once, in the conversation where it was made."""

from typing import Any

from perdure.agent.documents import UsageDoc
from perdure.base.delta import Operation
from perdure.base.ids import ConversationId
from perdure.base.jsonvalue import escape
from perdure.models.messages import Usage
from perdure.tasks.transaction import TaskTransaction

TOKENS = ("input", "output", "cache_read", "cache_write")


def _empty() -> dict[str, Any]:
    return {"requests": 0, "input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "cost": 0, "unpriced": 0}


async def book(tx: TaskTransaction, conversation: ConversationId, group: str, name: str, usage: Usage | None) -> None:
    """Add one attempt of a model (group "models") or one call of a tool ("tools") to the conversation's usage.

    `usage` None, or without a cost, counts as unpriced: unknown is not zero.
    """
    value: Any = await tx.value_of(UsageDoc, conversation)
    known = None if value is None else value[group].get(name)
    row = dict(known) if known is not None else _empty()
    row["requests"] += 1
    if usage is not None:
        row["input"] += usage.input
        row["output"] += usage.output
        row["cache_read"] += usage.cache_read
        row["cache_write"] += usage.cache_write
    if usage is None or usage.cost is None:
        row["unpriced"] += 1
    else:
        row["cost"] = round(row["cost"] + usage.cost, 10)
    path = f"/{group}/{escape(name)}"
    ops: list[Operation] = [{"op": "add" if known is None else "replace", "path": path, "value": row}]
    await tx.patch(UsageDoc, conversation, ops)


def total(values: list[Any]) -> dict[str, Any]:
    """The sum of usage documents: tokens, requests, cost; `unpriced` counts requests whose cost is unknown."""
    sum_ = _empty()
    for value in values:
        for group in ("models", "tools"):
            for row in value[group].values():
                for field in sum_:
                    sum_[field] += row[field]
    sum_["cost"] = round(sum_["cost"], 10)
    return sum_
