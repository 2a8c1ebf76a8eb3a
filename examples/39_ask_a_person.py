"""Asking a person: a task sleeps on the answer, with a deadline. Once it comes, once it does not; nothing runs."""

import asyncio

from perdure import HOUR, Extension, Harness, Next, Registry, Task, TaskRun, phase, task
from perdure.testing.clock import FakeClock
from perdure.tools import PersonAnswer, Question, ask


@task("desk.ask", version=1)
class Ask(Task[str]):
    """Completes with what somebody answered."""

    question: str

    @phase(first=True)
    async def begin(self, run: TaskRun) -> Next[str]:
        question = Question(self.question, choices=("tea", "coffee"))
        return run.sleep(self.answered, [ask("answer", question)], run.now() + 4 * HOUR)

    @phase
    async def answered(self, run: TaskRun) -> Next[str]:
        state = await run.read_signal(PersonAnswer, "answer")
        if state is None or state.expired:
            return run.complete("nobody answered")
        return run.complete(f"{state.value.by} wants {state.value.answer}")


async def main() -> None:
    clock = FakeClock()
    start = clock.now()
    registry = Registry([Extension("desk", tasks=[Ask])])
    async with Harness.open("memory:", registry=registry, clock=clock) as harness:
        first = await harness.start(Ask("What would you like, Ana?"))
        await harness.wait_parked()
        await clock.advance(HOUR)
        second = await harness.start(Ask("And you, Ben?"))
        wake = await harness.wait_parked()
        print("active:", wake.active, "| alarm in hours:", ((wake.at or 0) - start) / HOUR)
        for asked in await harness.questions():
            print(f"open: {asked.text} {list(asked.choices)} until hour {((asked.until or 0) - start) / HOUR:g}")

        ana, ben = await harness.questions()
        print("not one of the choices:", await harness.answer(ana.id, "beer", by="Ana"))
        answers = [harness.answer(ana.id, "tea", by="Ana"), harness.answer(ana.id, "coffee", by="Cem")]
        print("Ana, and Cem at the same time:", await asyncio.gather(*answers))
        print((await harness.tasks.wait(first)).result(str))
        print("open:", [asked.text for asked in await harness.questions()])

        await clock.advance(4 * HOUR)
        print((await harness.tasks.wait(second)).result(str))
        print("Ben, too late:", await harness.answer(ben.id, "tea", by="Ben"))


asyncio.run(main())
