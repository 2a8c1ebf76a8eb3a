"""What a call starts: tasks that it owns, and calls of other tools."""

from typing import Any

from perdure.agent.calls import CallSite
from perdure.agent.nested import Keys, NestedCall
from perdure.base.errors import InvalidValue, InvocationEnded
from perdure.base.ids import ConversationId, TaskId
from perdure.extensions.results import ToolResult
from perdure.extensions.tool import Tool
from perdure.tasks.outcomes import Outcome
from perdure.tasks.transaction import TaskTransaction


class CallWork:
    """The part of a tool's context that creates and awaits work. Once the call has ended, every use raises."""

    def __init__(self, site: CallSite, *, woken: bool = False) -> None:
        self._site = site
        self._keys = Keys(site.agent, site.run, woken=woken)

    def transaction(self) -> TaskTransaction:
        """A block on the line in the call's name. It cannot decide: a tool returns instead."""
        self._check()
        tx = self._site.run.transaction()
        tx.may_decide = False
        return tx

    async def create_task(
        self,
        task: Any,
        *,
        key: str | None = None,
        conversation: ConversationId | None = None,
        background: bool = False,
    ) -> TaskId:
        """Create a task owned by this call, or with `conversation` (and `background`) by a conversation. With a `key`
        a rerun finds the task of the first run."""
        self._check()
        if key is not None:
            if conversation is not None or background:
                raise InvalidValue("a key is for a task that the call owns")
            return await self._keys.start_task(task, key)
        self._keys.check_named(key)
        async with self.transaction() as tx:
            return tx.create_task(task, conversation=conversation, background=background)

    async def start_tool(
        self, tool: str | Tool, arguments: dict[str, Any] | None = None, *, key: str | None = None
    ) -> NestedCall:
        """Start another tool of this conversation, or find the call that was started under the key."""
        self._check()
        return await self._keys.start_tool(tool, {} if arguments is None else arguments, key)

    async def execute_tool(
        self, tool: str | Tool, arguments: dict[str, Any] | None = None, *, key: str | None = None
    ) -> ToolResult:
        """Run another tool of this conversation and wait in memory for its result."""
        return await (await self.start_tool(tool, arguments, key=key)).result()

    async def wait_task(self, id: TaskId) -> Outcome:
        """Wait in memory for a task's end."""
        self._check()
        outcome: Outcome = await self._site.agent.session.tasks.wait(id)
        return outcome

    def _check(self) -> None:
        if self._site.run.ended:
            raise InvocationEnded("the call has ended", hint="code that outlives its call can do nothing")
