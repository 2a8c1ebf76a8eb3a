"""Signals: typed values for tasks that may not be running. Every answer a sender can get, and an early value."""

import asyncio

from perdure import HOUR, Extension, Harness, Next, Registry, Signal, Task, TaskRun, phase, task
from perdure.testing.clock import FakeClock
from perdure.wakes import Expired

Build: Signal[dict[str, int]] = Signal("ops.build", version=1, schema=dict[str, int])


@task("ops.watch", version=1)
class WatchBuild(Task[str]):
    """Waits for two builds, one after the other, each under a key of its own."""

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[str]:
        return run.sleep(self.first, [Build.key("1")], run.now() + HOUR)

    @phase
    async def first(self, run: TaskRun) -> Next[str]:
        print("  woken by", run.wake)
        if isinstance(run.wake, Expired):
            return run.fail("build 1 never came")
        return run.sleep(self.second, [Build.key("2")])

    @phase
    async def second(self, run: TaskRun) -> Next[str]:
        print("  woken by", run.wake)
        state = await run.read_signal(Build, "2")
        return run.complete(f"build 2 took {state.value['seconds']} s" if state is not None else "nothing")


ops = Extension("ops", tasks=[WatchBuild], signals=[Build])


async def main() -> None:
    clock = FakeClock()
    async with Harness.open("memory:", registry=Registry([ops]), clock=clock) as harness:
        watch = await harness.start(WatchBuild())
        # it does not sleep on this key yet: the value is kept, and the sleep that comes later is over at once
        print("early:     ", await harness.signal(watch, Build, "2", {"seconds": 90}))
        await harness.wait_parked()
        print("sleeps:    ", harness.wake().active, "until", (harness.wake().at or 0) - clock.now(), "s from now")
        print("no task:   ", await harness.signal(4711, Build, "1", {"seconds": 60}))
        print("no fit:    ", await harness.signal_json(watch, "ops.build", "1", {"seconds": "sixty"}))
        print("in time:   ", await harness.signal(watch, Build, "1", {"seconds": 60}))
        print("once more: ", await harness.signal(watch, Build, "1", {"seconds": 61}))
        print("result:    ", (await harness.tasks.wait(watch)).result(str))
        print("too late:  ", await harness.signal(watch, Build, "3", {"seconds": 62}))

        late = await harness.start(WatchBuild())
        await harness.wait_parked()
        await clock.advance(HOUR)
        print("expired:   ", await harness.signal(late, Build, "1", {"seconds": 60}))


asyncio.run(main())
