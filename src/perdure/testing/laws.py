"""The laws that hold after every crash, everywhere. Each check raises `LawBroken` with the number of the law.

1. Every call in a model's context has exactly one result, behind its turn, in call order.
2. An unsafe effect happened at most once; reruns of a safe one share their memo; nothing finished runs again.
3. Every acknowledged submission is there once, in exactly one place, and ends in exactly one settlement.
4. What is stored is there after a reopen, and a conversation reads the same.
5. Never silently stuck.
6. Ownership: no live foreground work under an ended owner; live documents name live tasks only.
7. Usage: each stored attempt is booked once; what the provider counted beyond that was lost in a crash or an abort.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.agent.compactions import ATTEMPT, GOING_ON, shown
from perdure.agent.documents import InboxDoc, LiveDoc, UsageDoc
from perdure.agent.entries import AssistantEntry, UserEntry
from perdure.agent.pairing import check_pairing
from perdure.agent.rules import GENERATION
from perdure.agent.submissions import settled_of
from perdure.agent.usage import TOKENS
from perdure.base import jsonvalue
from perdure.base.errors import InvalidValue
from perdure.base.ids import ConversationId, SubmissionId, TaskId
from perdure.extensions.settled import Settled
from perdure.harness.conversation import Conversation
from perdure.harness.harness import Harness
from perdure.models.messages import AssistantMessage, Usage, decode_messages
from perdure.models.protocol import ModelRequest
from perdure.storage.records import Conversation as ConversationRecord
from perdure.storage.records import Submission, Task
from perdure.tasks.states import state_of
from perdure.testing import strict
from perdure.testing.dump import conversations, own_entries, submissions, tasks
from perdure.testing.ledger import Effect


class LawBroken(AssertionError):
    """A law does not hold."""

    def __init__(self, law: int, what: str) -> None:
        super().__init__(f"law {law}: {what}")
        self.law = law


class Acknowledged(NamedTuple):
    """A submission whose sender was told that it is stored."""

    conversation: ConversationId
    request_id: str | None
    id: SubmissionId


async def check_laws(
    harness: Harness,
    *,
    acknowledged: Iterable[Acknowledged] = (),
    told: Mapping[SubmissionId, Settled] | None = None,
    effects: Sequence[Effect] = (),
    requests: Sequence[ModelRequest] = (),
    counted: Sequence[Usage | None] | None = None,
    lost: int = 0,
) -> None:
    """Check all laws on a harness that has come to rest.

    `acknowledged` and `told` are what senders learned, `effects` a ledger's lines, `requests` what models were asked,
    `counted` what their finished answers reported, of which at most `lost` never reached the store.
    """
    await check_records(harness)
    check_requests(requests)
    check_effects(effects)
    await check_settled(harness, acknowledged, told or {})
    check_at_rest(harness)
    await check_usage(harness, counted, lost)


async def check_records(harness: Harness) -> None:
    """What holds at any moment, also right after a crash: laws 1, 3 and 6 on what is stored."""
    storage = await harness.session.store.settled()
    every = await conversations(storage)
    found = {c.id: {task.id: task for task in await tasks(storage, c)} for c in every}
    by_id = {id: task for of_one in found.values() for id, task in of_one.items()}
    for conversation in every:
        await _check_context(harness, conversation.id)
        await _check_places(harness, conversation)
        _check_owners(conversation, found[conversation.id], by_id)
        await _check_live(harness, conversation.id, by_id)


def check_requests(requests: Sequence[ModelRequest]) -> None:
    """Law 1 on what models were asked: neither we nor a strict provider find fault with it."""
    for number, request in enumerate(requests):
        try:
            check_pairing(list(request.messages))
            strict.check_pairing(request.messages)
        except Exception as error:
            raise LawBroken(1, f"request {number} would be refused: {error}") from error


def check_effects(effects: Sequence[Effect], ended: Mapping[TaskId, int] | None = None) -> None:
    """Law 2. `ended` tells in which process a task was first found ended in the store: later ones do not run it."""
    counts = Counter((effect.name, effect.task) for effect in effects if effect.unsafe)
    for (name, task), count in counts.items():
        if count > 1:
            raise LawBroken(2, f"{name} of task {task} happened {count} times")
    tokens: dict[tuple[str, TaskId], str | None] = {}
    for effect in effects:
        first = tokens.setdefault((effect.name, effect.task), effect.token)
        if effect.token != first:
            raise LawBroken(2, f"{effect.name} of task {effect.task} ran again with another memo")
        if effect.process >= (ended or {}).get(effect.task, effect.process + 1):
            raise LawBroken(2, f"{effect.name} ran after task {effect.task} was found ended")


async def check_settled(
    harness: Harness, acknowledged: Iterable[Acknowledged], told: Mapping[SubmissionId, Settled]
) -> None:
    """Law 3 for what senders were told."""
    storage = await harness.session.store.settled()
    for known in acknowledged:
        record = await storage.submission(known.id)
        if record is None:
            raise LawBroken(3, f"submission {known.id} ({known.request_id}) was acknowledged and is gone")
        if settled_of(record) is None:
            raise LawBroken(3, f"submission {known.id} ({known.request_id}) is {record.status} and nothing runs")
        if known.request_id is not None:
            found = await storage.submission_by_request(known.conversation, known.request_id)
            if found is None or found.id != known.id:
                raise LawBroken(3, f"request {known.request_id} was acknowledged as {known.id} and is now {found}")
        if known.id in told and told[known.id] != settled_of(record):
            raise LawBroken(3, f"submission {known.id} was told to be {told[known.id]}, it is {settled_of(record)}")


def check_at_rest(harness: Harness) -> None:
    """Law 5: what has not ended sleeps until a time, or its code is not installed."""
    for task in harness.inspect()["tasks"]:
        if task["status"] not in ("sleeping", "waiting", "completing") and "blocked" not in task:
            raise LawBroken(5, f"nothing moves, and task {task['id']} ({task['kind']}) is {task['status']}")
        if task["status"] == "waiting" and not _awaited(harness, task):
            raise LawBroken(5, f"task {task['id']} waits for tasks that have ended: {task['waits_for']}")
    sleeping = any("until" in task for task in harness.inspect()["tasks"])
    if sleeping and harness.wake().at is None:
        raise LawBroken(5, "a task sleeps, and wake() names no time")


async def check_usage(harness: Harness, counted: Sequence[Usage | None] | None, lost: int) -> None:
    """Law 7. Repeated requests count as real ones: the provider counted them too."""
    storage = await harness.session.store.settled()
    stored: list[Usage | None] = []
    for conversation in await conversations(storage):
        attempts = await _attempts(storage, conversation)
        await _check_booked(harness, conversation.id, attempts)
        stored += attempts
    if counted is None:
        return
    missing = Counter(map(_tokens, counted)) - Counter(_tokens(usage) for usage in stored)
    if missing.total() > lost:
        raise LawBroken(7, f"the provider counted {missing.total()} answers that are not stored, {lost} could be lost")
    invented = Counter(_tokens(usage) for usage in stored if usage is not None) - Counter(map(_tokens, counted))
    if invented:
        raise LawBroken(7, f"stored and never counted by the provider: {dict(invented)}")


async def readings(harness: Harness) -> dict[str, Any]:
    """What people see of a session: law 4 compares it before and after a reopen."""
    seen: dict[str, Any] = {"usage": await harness.usage()}
    for record in await conversations(await harness.session.store.settled()):
        conversation = Conversation(harness, record.id)
        seen[f"messages {record.id}"] = await conversation.messages()
        seen[f"live {record.id}"] = await conversation.live()
    return seen


async def _check_context(harness: Harness, conversation: ConversationId) -> None:
    messages = await Conversation(harness, conversation).messages()
    try:
        check_pairing(messages)
    except InvalidValue as error:
        raise LawBroken(1, f"conversation {conversation}: {error}") from error


async def _check_places(harness: Harness, conversation: ConversationRecord) -> None:
    """Every submission is in exactly one place: queue, transcript, or settled."""
    storage = await harness.session.store.settled()
    inbox: Any = await harness.session.value_of(InboxDoc, conversation.id)
    queue = Counter(item["submission"] for item in (inbox or {"items": []})["items"])
    placed: Counter[Any] = Counter()
    for entry in await own_entries(storage, conversation):
        if entry.kind == UserEntry.KIND:
            data: Any = jsonvalue.decode(entry.data)
            if not isinstance(data, dict) or "continues" not in data:  # else a hook's word, not a person's
                placed[data["submission"] if isinstance(data, dict) else None] += 1
    requests: Counter[str] = Counter()
    for submission in await submissions(storage, conversation):
        _check_place(submission, queue[submission.id], placed[submission.id])
        requests[submission.request_id or f" {submission.id}"] += 1
    for request_id, count in requests.items():
        if count > 1:
            raise LawBroken(3, f"{count} submissions under the request id {request_id}")


def _check_place(submission: Submission, queued: int, placed: int) -> None:
    what = f"submission {submission.id} is {submission.status}, {queued} times queued, {placed} times in the transcript"
    if queued != (submission.status == "queued"):
        raise LawBroken(3, what)
    if submission.kind == "write":
        return
    if placed != (submission.entry is not None) or (submission.status in ("placed", "done") and placed != 1):
        raise LawBroken(3, what)


def _check_owners(conversation: ConversationRecord, found: Mapping[TaskId, Task], by_id: Mapping[TaskId, Task]) -> None:
    owner = None if conversation.owner is None else by_id.get(conversation.owner)
    if conversation.owner is not None and owner is None:
        raise LawBroken(6, f"conversation {conversation.id} is owned by task {conversation.owner}, which is not there")
    for task in found.values():
        if task.status == "terminal":
            continue
        if owner is not None and owner.status == "terminal" and not task.background and task.owner is None:
            raise LawBroken(6, f"task {task.id} is live in a conversation whose owner {owner.id} has ended")
        above = None if task.owner is None else by_id.get(task.owner)
        if task.owner is not None and (above is None or above.status == "terminal"):
            raise LawBroken(6, f"task {task.id} ({task.kind}) is {task.status}, and its owner {task.owner} has ended")
        if above is not None and above.conversation != task.conversation:
            raise LawBroken(6, f"task {task.id} and its owner {above.id} are in two conversations")


async def _check_live(harness: Harness, conversation: ConversationId, by_id: Mapping[TaskId, Task]) -> None:
    live: Any = await harness.session.value_of(LiveDoc, conversation)
    if live is None:
        return
    run = live["run"]
    if run is None and (live["partial"] is not None or live["retry"] is not None):
        raise LawBroken(6, f"conversation {conversation} has no run, and shows one: {live}")
    generations = [t for t in by_id.values() if t.conversation == conversation and t.kind == GENERATION]
    open_ones = [task.id for task in generations if task.status != "terminal"]
    if run is not None and run["generation"] not in open_ones:
        raise LawBroken(6, f"the run of conversation {conversation} names task {run['generation']}, which has ended")
    if run is None and any(_works_on_run(task) for task in generations):
        raise LawBroken(6, f"conversation {conversation} has no run, and tasks {open_ones} work on one")
    for id, slot in shown(live).items():
        task = by_id.get(TaskId(int(id)))
        if slot["status"] in GOING_ON and (task is None or task.status == "terminal"):
            raise LawBroken(6, f"compaction {id} is shown as {slot['status']}, and its task has ended")
    for id, slot in live["tools"].items():
        task = by_id.get(TaskId(int(id)))
        if task is None or (task.status == "terminal" and slot["status"] != "done"):
            raise LawBroken(6, f"call {id} is shown as {slot['status']}, and its task has ended")


def _awaited(harness: Harness, task: Mapping[str, Any]) -> bool:
    live = {other["id"] for other in harness.inspect()["tasks"]}
    return any(id in live for id in task["waits_for"])


async def _attempts(storage: Any, conversation: ConversationRecord) -> list[Usage | None]:
    """What each attempt that a conversation stores reported."""
    found: list[Usage | None] = []
    for entry in await own_entries(storage, conversation):
        if entry.kind == AssistantEntry.KIND:
            message = decode_messages(entry.messages)[0]
            assert isinstance(message, AssistantMessage)
            found.append(message.usage)
        elif entry.kind == ATTEMPT:
            data: Any = jsonvalue.decode(entry.data)
            found.append(None if data["usage"] is None else msgspec.convert(data["usage"], Usage))
    return found


async def _check_booked(harness: Harness, conversation: ConversationId, attempts: Sequence[Usage | None]) -> None:
    value: Any = await harness.session.value_of(UsageDoc, conversation)
    rows = [] if value is None else list(value["models"].values())
    booked = {field: sum(row[field] for row in rows) for field in ("requests", *TOKENS)}
    there = {field: sum(0 if usage is None else getattr(usage, field) for usage in attempts) for field in TOKENS}
    if booked != {"requests": len(attempts), **there}:
        raise LawBroken(
            7, f"conversation {conversation}: booked {booked}, stored {len(attempts)} attempts with {there}"
        )


def _tokens(usage: Usage | None) -> tuple[int, ...] | None:
    return None if usage is None else tuple(getattr(usage, field) for field in TOKENS)


def _works_on_run(task: Task) -> bool:
    """Whether a generation holds its run open: one that has answered may still wait for what its end has started."""
    return task.status not in ("terminal", "completing") and state_of(task).checkpoint.phase != "ran"
