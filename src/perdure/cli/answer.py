"""`perdure answer`: the questions that wait for a person, and their answers, whoever has the session open."""

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from perdure.base import jsonvalue
from perdure.base.clock import SystemClock
from perdure.base.errors import NotFound
from perdure.cli.config import Config, load_config
from perdure.cli.deliver import delivered
from perdure.cli.open import marking, reading
from perdure.cli.session_names import find_session
from perdure.cli.show import emit, local_time, piped, say, shortened, table
from perdure.harness import questions
from perdure.harness.control import ask_owner
from perdure.harness.questions import OpenQuestion, shown
from perdure.storage.lock import read_owner
from perdure.tasks.signals import SignalResult


@click.command("answer")
@click.argument("session")
@click.argument("question", required=False)
@click.argument("value", required=False)
@click.option("--note", default="", help="A word for the agent: why, or what instead.")
@click.option("--by", default=lambda: os.environ.get("USER", ""), help="Who answers.", show_default="$USER")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str, question: str | None, value: str | None, note: str, by: str, as_json: bool) -> int:
    """Answer a question that waits for a person: an approval by yes or no, another one by a text (`-`: from stdin).

    Without a value the question is shown, without a question all of them. A beginning of an id that no other has will
    do. The first answer counts: a later one exits with 3.

    \b
    perdure answer nightly
    perdure answer nightly 12-answer "the blue one"
    perdure answer nightly 15-9f yes --note "but only once"
    """
    config = load_config()
    path = find_session(config, session)
    found = asyncio.run(_open_questions(path))
    if question is None:
        return _list(found, as_json)
    if value is None:
        return _show(_one(found, question), as_json)
    id = _named(found, question)
    given = piped().strip() if value == "-" else value
    result, told = asyncio.run(_answer(config, path, id, given, note, by))
    return delivered(result, told, as_json)


async def _open_questions(path: Path) -> list[OpenQuestion]:
    async with reading(path) as store:
        return await questions.open_questions(store.storage, SystemClock().now())


async def _answer(
    config: Config, path: Path, id: str, given: str, note: str, by: str
) -> tuple[SignalResult, int | None]:
    owner = read_owner(path)
    if owner is not None and owner.get("control"):
        request = {"do": "answer", "question": id, "answer": given, "note": note, "by": by}
        told = await ask_owner(str(owner["control"]), request)
        return told["result"], int(told["pid"])
    reply = questions.reply(given, note, by)
    async with marking(path, config) as harness, harness.session.transaction() as tx:
        return await questions.answer(tx, id, reply), None


def _named(found: list[OpenQuestion], id: str) -> str:
    """The whole id of what a beginning names. One that nobody asks any more is passed on: the session knows why."""
    matching = [one.id for one in found if one.id.startswith(id)]
    if id in matching or not matching:
        return id
    if len(matching) > 1:
        raise NotFound(f"{id!r} could be any of {', '.join(matching[:10])}", hint="give more of the id")
    return matching[0]


def _one(found: list[OpenQuestion], id: str) -> OpenQuestion:
    whole = _named(found, id)
    for one in found:
        if one.id == whole:
            return one
    raise NotFound(f"no open question {id!r}", hint="`perdure answer SESSION` lists them")


def _list(found: list[OpenQuestion], as_json: bool) -> int:
    if as_json:
        emit({"questions": [shown(one) for one in found]})
    elif not found:
        say("no open questions")
    else:
        rows = [[one.id, local_time(one.since), local_time(one.until), shortened(_text(one))] for one in found]
        table(rows, ["QUESTION", "SINCE", "UNTIL", ""])
    return 0


def _show(one: OpenQuestion, as_json: bool) -> int:
    if as_json:
        emit(shown(one))
        return 0
    say(one.text)
    if one.arguments is not None:
        say(f"arguments  {jsonvalue.encode(one.arguments).decode()}")
    for choice in one.choices:
        say(f"  - {choice}")
    say(f"asked      {local_time(one.since)} by task {one.task_id} of conversation {one.conversation_id}")
    say(f"until      {local_time(one.until)}")
    return 0


def _text(one: OpenQuestion) -> str:
    what: Any = one.text if one.arguments is None else f"{one.text} {jsonvalue.encode(one.arguments).decode()}"
    return f"{what} ({' / '.join(one.choices)})" if one.choices else what
