"""Tasks: durable state machines. A checkpoint is the next phase and its arguments; sleeping costs nothing."""

import asyncio

from perdure import ROOT, Extension, Harness, Next, Registry, TaskRun, phase, task
from perdure.testing.clock import FakeClock


@task("app.reminder", version=1)
class Reminder:
    """Asks three times, a day apart, and keeps count in its checkpoint."""

    text: str

    @phase(first=True)
    async def ask(self, run: TaskRun, times: int = 0) -> Next[str]:
        who = await run.memo("app.who", "Ana")  # the first writer wins, also across a crash
        print(f"  {who}, {self.text}? ({times + 1})")
        if times == 2:
            return run.complete("asked three times")
        return run.sleep(self.wake_up, until=run.now() + 86400, times=times + 1)

    @phase
    async def wake_up(self, run: TaskRun, times: int) -> Next[str]:
        print("  woken by", type(run.wake).__name__)
        return run.goto(self.ask, times)


async def main() -> None:
    clock = FakeClock()
    apps = Extension("apps", tasks=[Reminder])
    async with Harness.open("memory:", registry=Registry([apps]), clock=clock) as harness:
        await harness.resume()
        async with harness.session.transaction() as tx:
            reminder = tx.create_task(Reminder("did you water the plants"), conversation=ROOT, background=True)
        while harness.wake().active:
            await asyncio.sleep(0)
        print("parked until tomorrow:", harness.wake().at == clock.now() + 86400)
        await clock.advance(2 * 86400)
        outcome = await harness.tasks.wait(reminder)
        print(outcome.status, "-", outcome.result(str))


asyncio.run(main())
