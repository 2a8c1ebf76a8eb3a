"""`perdure compact`: have a conversation's older messages summarized, whoever has the session open."""

import asyncio
from pathlib import Path

import click

from perdure.base.ids import ROOT, ConversationId
from perdure.cli.config import Config, load_config
from perdure.cli.open import marking
from perdure.cli.session_names import find_session
from perdure.cli.show import emit, say
from perdure.harness.compacting import begin
from perdure.harness.control import ask_owner
from perdure.storage.lock import read_owner


@click.command("compact")
@click.argument("session")
@click.option("--conversation", type=int, default=int(ROOT), show_default=True, help="Which conversation.")
@click.option("--instructions", metavar="TEXT", help="What the summary must keep.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str, conversation: int, instructions: str | None, as_json: bool) -> int:
    """Have a conversation's older messages summarized. The newest stay as they are, and nothing is deleted.

    The process that has the session open does it at once, also while the agent works; without one the request is
    stored, and the next process that goes on with the session does it.
    """
    config = load_config()
    path = find_session(config, session)
    task, by = asyncio.run(_compact(config, path, ConversationId(conversation), instructions))
    if as_json:
        emit({"compacting": conversation, "task": task, "by": by})
    else:
        where = (
            f"process {by} has the session open and does it" if by else "done when somebody goes on with the session"
        )
        say(f"conversation {conversation}: a summary is asked for (task {task}); {where}")
    return 0


async def _compact(
    config: Config, path: Path, conversation: ConversationId, instructions: str | None
) -> tuple[int, int | None]:
    owner = read_owner(path)
    if owner is not None and owner.get("control"):
        request = {"do": "compact", "conversation": conversation, "instructions": instructions}
        answer = await ask_owner(str(owner["control"]), request)
        return int(answer["task"]), int(answer["pid"])
    async with marking(path, config) as harness:
        return await begin(harness.actions, conversation, instructions), None
