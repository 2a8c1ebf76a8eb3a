"""What a type checker tells the author of a task. Each line with `# error: code` must be one, and no other."""

import re
from pathlib import Path

import pytest
from mypy import api

from tests.repo.tidy import ROOT

pytestmark = pytest.mark.slow

PROGRAM = """
from dataclasses import dataclass

from perdure.base.ids import TaskId
from perdure.tasks.decisions import Decisions, Next
from perdure.tasks.definition import Task, phase, task
from perdure.tasks.outcomes import Outcome
from perdure.tasks.states import SignalKey


@dataclass
class Receipt:
    number: int


@task("shop.payment", version=1)
class Payment(Task[Receipt]):
    card: str
    amount: int = 1

    @phase(first=True)
    async def charge(self, run: Decisions) -> Next[Receipt]:
        if self.amount > 5:
            return run.complete("x")  # error: arg-type
        if self.amount > 4:
            return run.goto(self.decide, [TaskId(1)], note="x")
        if self.amount > 3:
            return run.sleep(until=1.0, then=self.decide, payments=[TaskId(1)])
        if self.amount > 2:
            return run.sleep(self.decide, [SignalKey("a", "k")], None, [TaskId(1)])
        if self.amount > 1:
            return run.wait(on=[TaskId(1)], policy="any", then=self.decide, payments=[TaskId(1)], note=None)
        if self.amount > 0:
            return run.fail("declined")
        return run.aborted()

    @phase
    async def decide(self, run: Decisions, payments: list[TaskId], note: str | None = None) -> Next[Receipt]:
        return run.complete(Receipt(1))

    @phase
    async def wrong(self, run: Decisions) -> Next[Receipt]:
        run.goto(self.decide)  # error: call-arg
        run.goto(self.decide, ["x"])  # error: list-item
        run.goto(self.decide, [TaskId(1)], nota="x")  # error: call-arg
        run.goto(self.helper)  # error: arg-type
        run.goto(Payment.decide, [TaskId(1)])  # error: arg-type
        run.wait([TaskId(1)], "first", self.wrong)  # error: arg-type
        run.wait([TaskId(1)], "any", self.decide, payments="x")  # error: arg-type
        run.sleep(until=1.0, then=self.decide)  # error: call-arg
        run.sleep(until="soon", then=self.wrong)  # error: arg-type
        run.sleep(self.wrong, ["app.x"])  # error: list-item
        run.fail(5)  # error: arg-type
        return run.complete()  # error: return-value

    @phase  # error: arg-type
    async def no_decision(self, run: Decisions) -> str:
        return ""

    async def helper(self, run: Decisions) -> Next[Receipt]:
        return run.fail("x")


payment = Payment("visa", amount=2)
Payment(card="visa")
Payment()  # error: call-arg
Payment("visa", color="red")  # error: call-arg
payment.card = "other"  # error: misc


def read(outcome: Outcome) -> None:
    receipt: Receipt = outcome.result(Receipt)
    text: str = outcome.result(Receipt)  # error: assignment
    print(receipt.number, text, outcome.completed)
"""


def test_mistakes_with_phases_inputs_and_results_are_found_by_the_type_checker(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    program = tmp_path / "shop_program.py"
    program.write_text(PROGRAM)
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT / 'src'}\nfollow_imports = silent\n")
    # what mypy knows of the library is kept between runs: to learn it takes half a minute
    cache: pytest.Cache | None = getattr(pytestconfig, "cache", None)
    kept = tmp_path / "cache" if cache is None else cache.mkdir("mypy")
    out, err, _ = api.run(
        ["--config-file", str(settings), "--cache-dir", str(kept), "--python-version", "3.11", str(program)]
    )
    assert not err
    found = {
        (int(line), code) for line, code in re.findall(r"shop_program\.py:(\d+): error: .*\[([\w-]+)\]$", out, re.M)
    }
    expected = {
        (number, said[1])
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if (said := re.search(r"# error: ([\w-]+)$", line))
    }
    assert found == expected, out
