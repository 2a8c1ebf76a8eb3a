"""`perdure ask`: one input, its answer on stdout, progress on stderr."""

import asyncio
import contextlib
import mimetypes
import os
import secrets
import time
from pathlib import Path
from typing import Any

import click

from perdure.base.errors import InvalidValue, Unanswered
from perdure.base.lazy import load
from perdure.cli.config import Config, load_config, pick_model
from perdure.cli.open import running
from perdure.cli.progress import follow
from perdure.cli.session_names import new_session
from perdure.cli.show import emit, note, piped, say
from perdure.harness.conversation import Conversation
from perdure.harness.harness import Harness
from perdure.harness.submission import Submission
from perdure.models.messages import Text
from perdure.models.provider import ProviderModels


@click.command("ask")
@click.argument("text")
@click.option("--session", "name", help="The session's name; a new one is made and named on stderr without it.")
@click.option("--request-id", help="Names this request: the same id again gives the same answer, never a second run.")
@click.option("--model", help="provider:model, for a session that has none yet.")
@click.option(
    "--attach",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="An image or file to show with the input; may be given several times.",
)
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), help="Where the agent works; default: here.")
@click.option("--app", help="module:registry with extensions of your own.")
@click.option(
    "--subagents", is_flag=True, help="Give it the tool `subagents`, and stay until its subagents have ended."
)
@click.option("--json", "as_json", is_flag=True, help="Events as JSON lines on stdout.")
def command(
    text: str,
    name: str | None,
    request_id: str | None,
    model: str | None,
    files: tuple[str, ...],
    cwd: str | None,
    app: str | None,
    subagents: bool,
    as_json: bool,
) -> int:
    """Give the agent one input and print its answer. TEXT `-` reads the input from stdin.

    \b
    perdure ask "What does this repository do?"
    perdure ask --session fix --request-id fix-1 "Make the failing test pass"
    perdure ask --attach screen.png "What is wrong here?"
    git diff | perdure ask -
    """
    config = load_config()
    content = piped() if text == "-" else text
    if not content.strip():
        raise InvalidValue("the input is empty")
    if name is None:
        name = time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)
    where = None if cwd is None else os.path.abspath(cwd)
    shown = [(Path(file).name, Path(file).read_bytes()) for file in files]
    return asyncio.run(_ask(config, content, shown, name, request_id, model, where, app, subagents, as_json))


async def _ask(
    config: Config,
    content: str,
    shown: list[tuple[str, bytes]],
    name: str,
    request_id: str | None,
    model: str | None,
    cwd: str | None,
    app: str | None,
    subagents: bool,
    as_json: bool,
) -> int:
    path = new_session(config, name)
    fresh = not path.exists()
    chosen = pick_model(model, config) if fresh or model is not None else None
    if chosen is not None:
        ProviderModels().model(chosen)  # a name that leads nowhere is refused before anything is made
    async with contextlib.AsyncExitStack() as stack:
        harness = await stack.enter_async_context(running(path, config, app=app))
        if subagents:
            await stack.enter_async_context(load("perdure.cli.with_subagents:beside")(harness))
        root = await harness.root()
        await _give_agent(harness, root, chosen, cwd, config, overwrite=model is not None)
        files = [await harness.attach(data, mimetypes.guess_type(file)[0], name=file) for file, data in shown]
        submission = await root.submit([Text(content), *files] if files else content, request_id=request_id)
        if as_json:
            emit({"type": "submitted", "session": name, "submission": submission.id, "request_id": request_id})
        elif fresh:
            note(f"session {name}")
        code = await answer(harness, root, submission, name, as_json)
        if subagents and code == 0:
            await load("perdure.cli.with_subagents:stay")(harness, root)
        return code


async def _give_agent(
    harness: Harness, root: Conversation, model: str | None, cwd: str | None, config: Config, *, overwrite: bool
) -> None:
    names = await root.agent()
    fields: dict[str, Any] = {}
    if model is not None and (names.model is None or overwrite):
        fields["model"] = model
    elif names.model is None:
        fields["model"] = pick_model(None, config)
    if cwd is not None or names.cwd is None:
        fields["cwd"] = cwd or os.getcwd()
    if config.thinking is not None and names.thinking is None:
        fields["thinking"] = config.thinking
    if fields:
        await root.configure(**fields)


async def answer(harness: Harness, root: Conversation, submission: Submission, name: str, as_json: bool) -> int:
    """Follow a submission to its end and print the answer."""
    try:
        async with follow(root, as_json):
            await submission.settled()
    except asyncio.CancelledError:
        note(f"the input is stored: `perdure resume {name}` goes on with it")
        raise
    try:
        found = await submission.wait()
    except Unanswered as error:
        if as_json:
            emit({"type": "unanswered", "reason": error.reason, "detail": error.detail})
        else:
            note(f"error: no answer: {error.reason}" + (f": {error.detail}" if error.detail else ""))
            note("  certain: what was said and done is stored")
            note(f"  try: perdure log {name}")
        return 1
    if as_json:
        emit({"type": "answer", "text": found.text, "entry": found.entry_id, "usage": await root.usage()})
    else:
        say(found.text)
    return 0
