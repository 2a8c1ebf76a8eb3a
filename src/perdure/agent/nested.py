"""Calls that a tool makes of other tools, and other work that it starts under a key: found again by a rerun."""

from typing import Any, Final

import msgspec

from perdure.agent.agent import Agent
from perdure.agent.calls import error_result, own_copy
from perdure.base import jsonvalue
from perdure.base.digest import sha256
from perdure.base.errors import InvalidValue, Refused
from perdure.base.ids import TaskId
from perdure.extensions.hooks import tool_name
from perdure.extensions.results import ToolResult, read_control
from perdure.models.messages import Content, Usage
from perdure.tasks.outcomes import Aborted, Completed, Failed, Outcome
from perdure.tasks.runtime import TaskRun
from perdure.tasks.states import decode_memos, with_memo
from perdure.tasks.transaction import TaskTransaction

NESTED: Final = "perdure.nested_tool"
NESTED_TASK: Final = "perdure.agent.nested_task:NestedTool"
"""Where its code is loaded from when the first nested call is made."""
KEYS: Final = "perdure.key."
"""Memos of a call that name what it started under a key."""

DEEPEST: Final = 32
"""Calls within calls at most: a tool that calls itself without an end is told, instead of filling the session."""


class KeyConflict(Refused):
    """A key of a call stands for other work already."""

    code = "key_conflict"


class NestedCall:
    """A call that a tool has started. It goes on while the tool does other things, and ends with it."""

    def __init__(self, agent: Agent, task_id: TaskId) -> None:
        self.task_id = task_id
        self._agent = agent

    def __repr__(self) -> str:
        return f"NestedCall({self.task_id})"

    async def result(self) -> ToolResult:
        """Wait in memory for its result; the stored one once it has ended. An error is a result too."""
        return result_of(await self._agent.session.tasks.wait(self.task_id))


class Keys:
    """What one run of a call has started, by key."""

    def __init__(self, agent: Agent, run: TaskRun, *, woken: bool = False) -> None:
        self._agent = agent
        self._run = run
        self._woken = woken
        self._unnamed = 0

    async def start_tool(self, tool: Any, arguments: dict[str, Any], key: str | None) -> NestedCall:
        """Start a nested call, or find the one that was started under the key."""
        name = tool_name(tool, "a nested call")
        if not isinstance(arguments, dict):
            raise InvalidValue(f"arguments are a dict, not {type(arguments).__name__}")
        own = own_copy(arguments)
        self.check_named(key)
        if key is None:
            self._unnamed += 1
        place = f"#{self._unnamed}" if key is None else f"={_checked(key)}"
        self._check_depth(name)
        digest = sha256(jsonvalue.canonical({"tool": name, "arguments": own})).hex()[:32]
        definition = self._agent.task(NESTED)
        assert definition is not None
        id = await self._start(place, f"tool {name} {digest}", lambda: definition.cls(tool=name, arguments=own))
        return NestedCall(self._agent, id)

    def check_named(self, key: str | None) -> None:
        """Refuse work without a key once the call has parked: its position in a run means another call then."""
        if key is None and self._woken:
            raise InvalidValue("work without a key, in a call that has parked", hint="pass key= to find it again")

    async def start_task(self, task: Any, key: str) -> TaskId:
        """Create a task that the call owns, or find the one that was created under the key."""
        kind = getattr(getattr(task, "__perdure_task__", None), "kind", None)
        return await self._start(f"={_checked(key)}", f"task {kind}", lambda: task)

    def _check_depth(self, name: str) -> None:
        depth, known = 0, self._agent.session.tasks.known(self._run.task_id)
        while known is not None and known.kind == NESTED and known.owner is not None:
            depth, known = depth + 1, self._agent.session.tasks.known(known.owner)
        if depth >= DEEPEST:
            raise Refused(f"tool {name} would be called {depth + 1} calls deep", hint=f"at most {DEEPEST} are")

    async def _start(self, place: str, what: str, make: Any) -> TaskId:
        memo = f"{KEYS}{place}"
        known = _known(self._run.record.memos, memo, what)
        if known is not None:
            return known
        async with self._run.transaction() as tx:
            tx.may_decide = False
            record = await self._run.own_record(tx)
            known = _known(record.memos, memo, what)
            if known is None:
                known = tx.create_task(make(), owner=self._run.task_id)
                tx.put_task(with_memo(record, memo, {"task": known, "is": what}))
        return known


def _checked(key: Any) -> str:
    if not isinstance(key, str) or not key or not jsonvalue.is_strict(key):
        raise InvalidValue(f"a key is a text that is not empty, not {key!r}")
    return key


def _known(memos: bytes | None, memo: str, what: str) -> TaskId | None:
    stored: Any = decode_memos(memos).get(memo)
    if stored is None:
        return None
    if stored["is"] != what:
        used, now = stored["is"].split(" ")[:2], what.split(" ")[:2]
        raise KeyConflict(
            f"the key {memo.removeprefix(KEYS)[1:]!r} of this call stands for {' '.join(used)}"
            + (" with other arguments" if used == now else f", not for {' '.join(now)}"),
            hint="give each piece of work a key of its own; without keys, nested calls must come in the same order",
        )
    return TaskId(stored["task"])


async def end_nested(agent: Agent, tx: TaskTransaction, run: TaskRun) -> None:
    """A call settles: nested calls that still run are stopped, since nobody will read their results."""
    tasks = agent.session.tasks
    for id in list(tasks.index.children(run.task_id)):
        child = tx.live_task(id)
        if child is not None and child.kind == NESTED:
            await tx.abort_task(id)


# results as JSON, which the task of a nested call completes with


def result_json(result: ToolResult) -> dict[str, Any]:
    """A result as JSON, without what is not there."""
    plain: dict[str, Any] = msgspec.to_builtins(result)
    return {name: value for name, value in plain.items() if value is not None}


def result_of(outcome: Outcome) -> ToolResult:
    """The result of a nested call that has ended, however it did."""
    match outcome:
        case Completed(value=dict(kept)) | Failed(error={"result": dict(kept)}):
            stored: Any = jsonvalue.copied(kept)
        case Aborted(reason=str(text)):
            return ToolResult(text, is_error=True)
        case _:
            return error_result(outcome.status, outcome.why)
    return ToolResult(
        msgspec.convert(stored["content"], str | list[Content]),
        stored["is_error"],
        stored.get("details"),
        stored.get("diagnostics"),
        msgspec.convert(stored["usage"], Usage) if "usage" in stored else None,
        read_control(stored.get("control")),
        stored.get("structured"),
    )
