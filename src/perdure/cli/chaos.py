"""`perdure agents chaos`: nine faults on real processes, offline, and a verdict."""

import asyncio
import json

import click
import msgspec

from perdure.base.text import printable
from perdure.testing.chaos import SCENARIOS, Verdict, run_scenario


@click.command("chaos")
@click.option("--scenario", type=click.IntRange(1, len(SCENARIOS)), help="Only this one.")
@click.option("--keep", is_flag=True, help="Keep the temporary folders, and print where they are.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def chaos(scenario: int | None, keep: bool, as_json: bool) -> int:
    """Kill and break everything while a writer, a reviewer and an integrator work; count what was lost or done twice.

    Offline, under two minutes; nothing of yours is used."""
    numbers = [scenario] if scenario is not None else range(1, len(SCENARIOS) + 1)
    verdicts: list[Verdict] = []
    for number in numbers:
        verdicts.append(asyncio.run(run_scenario(number, keep=keep)))
        if not as_json:
            one = verdicts[-1]
            click.echo(f"{one.number}  {'pass' if one.passed else 'FAIL'}  {one.seconds:5.1f} s  {one.name}")
            if one.problem:
                click.echo(printable(f"     {one.problem}"))
            if one.evidence:
                click.echo(f"     {one.evidence}")
    passed = all(one.passed for one in verdicts)
    if as_json:
        click.echo(json.dumps({"passed": passed, "scenarios": [msgspec.to_builtins(one) for one in verdicts]}))
    elif passed:
        click.echo("duplicate runs 0 · lost results 0 · restarted from scratch 0")
    return 0 if passed else 1
