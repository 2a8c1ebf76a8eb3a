"""Named subagents that stay: what is stored of them, and the tasks that ask them and tell what they answered."""

from typing import Any, Final, TypedDict

from perdure.base.errors import OwnershipRefused
from perdure.base.ids import ConversationId, TaskId
from perdure.extensions.documents import Document, UserMessage, document_family, entry
from perdure.extensions.results import bounded_text
from perdure.extensions.settled import Settled, SubmissionSettled
from perdure.extensions.work import Next, Signal, TaskRun, phase, task

ANSWERED: Final = "answered"
HEARD: Final = "heard"
MOST_NAMES: Final = 1000
"""Names that are looked at. A host lets far fewer live at once, and names of stopped ones are given up for new ones."""

Ended: Signal[bool] = Signal("subagents.ended", schema=bool)
"""Ends an anchor in good order: it waits for what is under way below it."""


class Member(TypedDict):
    """A named subagent of a conversation. It lives as long as its anchor."""

    call: int
    """The call that made it."""
    anchor: int
    conversation: int
    role: str | None
    reports: list[int]
    """Those who bring answers."""
    waiting: dict[str, int]
    """By report, the call that takes its answer as a result: it comes as no message then."""


def _migrate_member(stored: Any, version: int) -> Any:
    """The first version did not know which call waits; what is stopped is known from the anchor."""
    kept = {name: stored[name] for name in ("call", "anchor", "conversation", "role", "reports")}
    return {**kept, "waiting": {}}


MemberDoc: Document[Any] = document_family(
    "subagents.member", Member, version=2, scope="conversation", fork="initial", migrate=_migrate_member
)
"""By name. A fork has none: they answer where they were asked."""


class Taken(TypedDict):
    """The reports that a call made, or waits for, by name; stored in the commit that does so."""

    reports: dict[str, list[int]]


TakenDoc: Document[Any] = Document("subagents.taken", Taken, scope="task")


@entry("subagents.reported")
class Reported:
    """An answer that was withdrawn from the queue together with a person's messages: it is not lost, and starts no
    work."""

    name: str
    text: str

    def to_model(self) -> list[UserMessage]:
        """As the message that it would have been."""
        return [UserMessage(message_of(self.name, self.text))]


def message_of(name: str, text: str) -> str:
    """An answer as it is told."""
    return f"Message from your subagent {name}:\n{text}"


def is_at_work(tx: Any, id: int) -> bool:
    """Whether a task is live, and neither ending nor being stopped."""
    known = tx.live_task(TaskId(id))
    return known is not None and known.status != "completing" and not known.abort_requested


async def anchors(tx: Any, conversation: ConversationId) -> list[TaskId]:
    """Those of the named subagents of a conversation that stand."""
    found = []
    for name in await tx.document_keys(MemberDoc, conversation, limit=MOST_NAMES):
        member = await tx.value_of(MemberDoc, conversation, key=name)
        if member is not None and is_at_work(tx, member["anchor"]):
            found.append(TaskId(member["anchor"]))
    return found


async def stop_members(tx: Any, conversation: ConversationId) -> None:
    """Stop every named subagent of a conversation, and what they keep."""
    for anchor in await anchors(tx, conversation):
        await tx.abort_task(anchor, background=True)


async def dismiss_members(tx: Any, conversation: ConversationId) -> None:
    """Ask no more of any named subagent of a conversation; what they have begun goes on to its end. A task below one
    may do this, which cannot stop what it belongs to."""
    for anchor in await anchors(tx, conversation):
        await tx.signal(anchor, Ended, "ended", True)


@task("subagents.anchor", version=1)
class Anchor:
    """Owns a named subagent's conversation and whoever asks it; stopping it stops those first."""

    name: str

    @phase(first=True)
    async def stand(self, run: TaskRun) -> Next[None]:
        if await run.read_signal(Ended, "ended") is not None:
            return run.complete()
        return run.sleep(self.stand, [Ended.key("ended")])


@task("subagents.report", version=2)
class Report:
    """Hands one message to a subagent, and hands on its answer."""

    name: str
    conversation: int
    message: str

    @phase(first=True)
    async def ask(self, run: TaskRun) -> Next[str]:
        await self._submit(run)
        return run.sleep(self.hear, [SubmissionSettled.key(ANSWERED)])

    async def _submit(self, run: TaskRun) -> Any:
        """The submission; asked for again it is the same one."""
        child = run.conversation(ConversationId(self.conversation))
        return await child.submit(self.message, request_id=f"report:{run.task_id}", notify=(run.task_id, ANSWERED))

    @phase
    async def hear(self, run: TaskRun) -> Next[str]:
        state = await run.read_signal(SubmissionSettled, ANSWERED)
        settled: Settled | None = state.value if state is not None else None
        if settled is not None and settled.status == "done":
            text = bounded_text((await (await self._submit(run)).wait()).text)
        else:
            text = f"It ended without an answer: {settled.detail or settled.reason}" if settled else "It ended."
        async with run.transaction() as tx:  # whoever waits and whoever tells decide in one order
            member: Any = await tx.value_of(MemberDoc, run.conversation_id, key=self.name)
            call = 0
            if isinstance(member, dict) and run.task_id in member["reports"]:
                waiting = dict(member["waiting"])
                call = waiting.pop(str(run.task_id), 0)
                left = {"reports": [id for id in member["reports"] if id != run.task_id], "waiting": waiting}
                await tx.set(MemberDoc, run.conversation_id, {**member, **left}, key=self.name)
            tell = Tell(self.name, text, call if call and is_at_work(tx, call) else 0)
            if run.record.owner is not None:
                tx.create_task(tell, owner=run.record.owner)
            else:
                tx.create_task(tell, conversation=run.conversation_id, background=True)
            return tx.complete(text)

    @staticmethod
    def migrate(stored: Any, from_version: int) -> Any:
        """The first version told by itself; where it stood the answer is there to be heard again."""
        if stored.phase == "tell":
            stored.phase, stored.arguments = "hear", {}
        return stored


@task("subagents.tell", version=1)
class Tell:
    """Brings one answer into the conversation that it belongs to, once: by the call that takes it as its result or,
    where that is stopped or there is none, as a message."""

    name: str
    text: str
    call: int

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[None]:
        return run.wait([TaskId(self.call)], "all_settled", self.taken) if self.call else run.goto(self.say)

    @phase
    async def taken(self, run: TaskRun) -> Next[None]:
        (outcome,) = await run.outcomes([TaskId(self.call)])
        return run.complete() if outcome.status == "completed" else run.goto(self.say)

    @phase
    async def say(self, run: TaskRun) -> Next[None]:
        said = message_of(self.name, self.text)
        mine = f"report:{run.task_id}"
        try:
            await run.conversation().submit(said, request_id=mine, when_busy="steer", notify=(run.task_id, HEARD))
        except OwnershipRefused:  # the conversation's own work is over: nobody is left to hear it, or to ask again
            async with run.transaction() as tx:
                await dismiss_members(tx, run.conversation_id)
                return tx.fail("nobody is left to hear it")
        return run.sleep(self.said, [SubmissionSettled.key(HEARD)])

    @phase
    async def said(self, run: TaskRun) -> Next[None]:
        state = await run.read_signal(SubmissionSettled, HEARD)
        if state is not None and state.value.reason == "withdrawn":  # somebody stopped the work before it was placed
            await run.conversation().write(Reported(self.name, self.text), request_id=f"withdrawn:{run.task_id}")
        return run.complete()


@task("subagents.alarm", version=1)
class Alarm:
    """Ends at its time, so that whoever waits for answers waits no longer."""

    until: float

    @phase(first=True)
    async def wait(self, run: TaskRun) -> Next[None]:
        return run.sleep(self.ring, until=self.until)

    @phase
    async def ring(self, run: TaskRun) -> Next[None]:
        return run.complete()
