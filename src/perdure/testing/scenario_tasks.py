"""Every way in which a task of the core goes, as scenarios for the crash explorer."""

from typing import Any

from perdure.agent.tool_context import ToolContext
from perdure.base.ids import ROOT, TaskId
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.session.documents import Document
from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun
from perdure.tasks.transaction import TaskTransaction
from perdure.testing.crash import Process, Scenario
from perdure.testing.laws import LawBroken
from perdure.testing.ledger import Ledger
from perdure.testing.scenarios import ask, begin
from perdure.testing.turns import call, say

NAP_SECONDS = 3600.0

Basket: Document[Any] = Document("scenario.basket", dict, scope="task", initial=lambda: {"items": [], "note": ""})
"""A document of a task: gone when the task ends."""
Receipts: Document[Any] = Document("scenario.receipts", dict, initial=lambda: {"paid": []}, history="rewindable")


class Bank:
    """What payments reach: the ledger of the process that runs now."""

    ledger: Ledger


@task("scenario.payment")
class Payment:
    """Charges a card, by a key that makes reruns harmless; undoes it when aborted. The card "slow" takes an hour."""

    card: str

    @phase(first=True)
    async def charge(self, run: TaskRun) -> Next[str]:
        """Charge, then see."""
        token = await run.memo("key", f"payment-{run.task_id}")
        Bank.ledger.ran(run, "charge", unsafe=False, token=token)
        if self.card == "bad":
            return run.fail("declined")
        if self.card == "slow":
            return run.sleep(self.confirmed, (), run.now() + NAP_SECONDS)
        return run.complete(token)

    @phase
    async def confirmed(self, run: TaskRun) -> Next[str]:
        """The bank took its time."""
        return run.complete("late")

    async def abort(self, run: TaskRun) -> Next[Any]:
        """Give the money back."""
        Bank.ledger.ran(run, "refund", unsafe=False, token=f"payment-{run.task_id}")
        return run.aborted("refunded")


@task("scenario.checkout")
class Checkout:
    """Charges all cards; the first that fails aborts the others."""

    cards: list[str]

    @phase(first=True)
    async def pay(self, run: TaskRun) -> Next[Any]:
        """Create the payments and wait, in one commit."""
        async with run.transaction() as tx:
            payments = [tx.create_task(Payment(card=card), owner=run.task_id) for card in self.cards]
            return tx.wait(payments, "fail_fast", self.decide, payments)

    @phase
    async def decide(self, run: TaskRun, payments: list[TaskId]) -> Next[Any]:
        """All have ended."""
        outcomes = await run.outcomes(payments)
        if all(outcome.completed for outcome in outcomes):
            return run.complete("order placed")
        return run.fail("a payment failed")


@task("scenario.collector")
class Collector:
    """Fills a basket of its own over several phases, and moves it into the conversation's receipts at the end."""

    wanted: int

    @phase(first=True)
    async def collect(self, run: TaskRun, number: int = 0) -> Next[Any]:
        """One more, by a draft."""
        async with run.transaction() as tx:
            basket = await tx.doc(Basket, run.task_id)
            basket["items"].append(f"item {number}")
            basket["note"] += "." * (number + 1)
            if number + 1 < self.wanted:
                return tx.goto(self.collect, number + 1)
            return tx.goto(self.pack)

    @phase
    async def pack(self, run: TaskRun) -> Next[Any]:
        """Move it."""
        async with run.transaction() as tx:
            basket = await tx.value_of(Basket, run.task_id)
            receipts = await tx.doc(Receipts, run.conversation_id)
            receipts["paid"].extend(basket["items"])
            return tx.complete(len(receipts["paid"]))


def offices(process: Process) -> Registry:
    """The tasks, and tools that start them."""
    Bank.ledger = process.ledger
    office = Extension("office")
    office.add(Payment, Checkout, Collector, Basket, Receipts)

    @office.tool
    async def buy(ctx: ToolContext, cards: list[str]) -> str:
        """Check out."""
        process.ledger.ran(ctx, "buy")
        outcome = await ctx.wait_task(await ctx.create_task(Checkout(cards=cards)))
        return f"{outcome.status}"

    @office.tool
    async def later(ctx: ToolContext) -> str:
        """Pay in the background."""
        await ctx.create_task(Payment(card="slow"), conversation=ctx.conversation_id, background=True)
        return "will be paid"

    @office.tool
    async def linger(ctx: ToolContext) -> str:
        """Wait for a slow payment of one's own."""
        id = await ctx.create_task(Payment(card="slow"))
        process.reached.add("slow")
        return (await ctx.wait_task(id)).status

    return Registry([office])


async def create(process: Process, *created: Any, background: bool = False) -> list[TaskId]:
    """Create tasks of the root in one commit; that they were created is an acknowledgement."""
    tx: TaskTransaction
    async with process.harness.session.transaction() as tx:
        ids = [tx.create_task(one, conversation=ROOT, background=background) for one in created]
    process.history.notes["tasks"] = ids
    await process.harness.resume()
    return ids


async def outcomes(process: Process) -> list[str]:
    """How the acknowledged tasks ended. All of them have."""
    found = []
    for id in process.history.notes.get("tasks", ()):
        known = process.harness.tasks.known(id)
        if known is not None:
            raise LawBroken(5, f"task {id} is {known.status} at the end")
        outcome = await process.harness.tasks.wait(id)
        found.append(outcome.status)
    return found


async def checkout(process: Process) -> None:
    """One card fails while another takes long: that one is refunded."""
    await create(process, Checkout(cards=["good", "slow", "bad"]))
    await process.run_out()


async def check_checkout(process: Process) -> None:
    """The order failed, and what was charged slowly was given back."""
    assert set(await outcomes(process)) <= {"failed"}
    if process.history.notes.get("tasks"):
        assert process.ledger.count("refund") >= 1


async def nap(process: Process) -> None:
    """A payment that sleeps, and one in the background."""
    await create(process, Payment(card="slow"), Payment(card="good"))
    await process.run_out()


async def check_completed(process: Process) -> None:
    """Everything that was acknowledged is done."""
    assert set(await outcomes(process)) <= {"completed"}


async def background(process: Process) -> None:
    """Background work outlives an abort of the conversation."""
    ids = await create(process, Payment(card="slow"), background=True)
    await process.settled(await process.submit("go", request_id="first"))
    await process.abort()
    assert process.number > 1 or all(process.harness.tasks.known(id) is not None for id in ids)


async def collect(process: Process) -> None:
    """Documents of a task."""
    await create(process, Collector(wanted=4))
    await process.run_out()


async def check_collected(process: Process) -> None:
    """Each item arrived once."""
    await check_completed(process)
    receipts = await process.harness.session.value_of(Receipts, ROOT)
    items = [f"item {number}" for number in range(4)]
    if process.history.notes.get("tasks"):
        assert receipts == {"paid": items}, receipts
    for task_id in process.history.notes.get("tasks", ()):
        assert await process.harness.session.value_of(Basket, task_id) is None


async def abort_owner(process: Process) -> None:
    """A call is aborted while it waits for a payment of its own: the payment is refunded first."""
    first = await begin(process)
    await process.abort()
    await process.settled(first)


TASKS = [
    Scenario("checkout", checkout, registry=offices, check=check_checkout),
    Scenario("sleeping task", nap, registry=offices, check=check_completed),
    Scenario("background task", background, turns=[say("Hello.")], registry=offices, check=check_completed),
    Scenario("task documents", collect, registry=offices, check=check_collected),
    Scenario("tool buys", ask("buy"), turns=[call("buy", {"cards": ["a", "bad", "slow"]}), say("x")], registry=offices),
    Scenario("tool leaves work", ask("later"), turns=[call("later"), say("Soon.")], registry=offices),
    Scenario("abort of an owner", abort_owner, turns=[call("linger"), say("x")], registry=offices, finish=abort_owner),
]
"""Tasks, what they own, and the documents they keep."""
