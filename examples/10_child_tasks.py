"""Child tasks: a checkout charges several cards at once. One is declined: the others are refunded, deepest first."""

import asyncio
from typing import Any

from perdure import Extension, Harness, Next, Registry, TaskId, TaskRun, phase, task
from perdure.models.messages import ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say

bank: list[str] = []


@task("shop.payment", version=1)
class Payment:
    card: str

    @phase(first=True)
    async def charge(self, run: TaskRun) -> Next[str]:
        if self.card == "declined":
            return run.fail("card declined")
        bank.append(f"charge {self.card}")  # a real one is idempotent by a key made of run.task_id
        return run.sleep(self.settle, until=run.now() + 3600)

    @phase
    async def settle(self, run: TaskRun) -> Next[str]:
        return run.complete(f"receipt {self.card}")

    async def abort(self, run: TaskRun) -> Any:
        bank.append(f"refund {self.card}")
        return run.aborted()


@task("shop.checkout", version=1)
class Checkout:
    cards: list[str]

    @phase(first=True)
    async def pay(self, run: TaskRun) -> Next[str]:
        async with run.transaction() as tx:
            payments = [tx.create_task(Payment(card=card)) for card in self.cards]
            return tx.wait(on=payments, policy="fail_fast", then=self.decide, payments=payments)

    @phase
    async def decide(self, run: TaskRun, payments: list[TaskId]) -> Next[str]:
        outcomes = await run.outcomes(payments)
        print("payments:", [outcome.status for outcome in outcomes])
        if all(outcome.completed for outcome in outcomes):
            return run.complete("order placed")
        return run.fail("a payment failed")


shop = Extension("shop", tasks=[Payment, Checkout])


@shop.tool
async def checkout(ctx: Any, cards: list[str]) -> str:
    """Pay for the cart, split over several cards."""
    outcome = await ctx.wait_task(await ctx.create_task(Checkout(cards=cards)))
    return outcome.result(str) if outcome.completed else f"{outcome.status}: {outcome.why}"


async def main() -> None:
    model = ScriptedModel([call("checkout", {"cards": ["visa", "declined", "amex"]}), say("One card was declined.")])
    async with Harness.open("memory:", registry=Registry([shop]), models=model) as harness:
        root = await harness.root(model="scripted:model")
        print("agent:", (await (await root.submit("Check out")).wait()).text)
        results = [m.content for m in await root.messages() if isinstance(m, ToolResultMessage)]
        print("tool: ", results[0])
        print("bank: ", sorted(bank))


asyncio.run(main())
