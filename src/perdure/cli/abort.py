"""`perdure abort`: stop a conversation's work, whoever has the session open."""

import asyncio
from pathlib import Path

import click

from perdure.base.ids import ROOT, ConversationId
from perdure.cli.config import Config, load_config
from perdure.cli.open import marking
from perdure.cli.session_names import find_session
from perdure.cli.show import emit, say
from perdure.harness.control import ask_owner
from perdure.storage.lock import read_owner


@click.command("abort")
@click.argument("session")
@click.option("--conversation", type=int, default=int(ROOT), show_default=True, help="Which conversation.")
@click.option("--background", is_flag=True, help="Reach background work too.")
@click.option("--keep-queued", is_flag=True, help="Leave queued inputs where they are.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str, conversation: int, background: bool, keep_queued: bool, as_json: bool) -> int:
    """Stop a conversation's current work and withdraw its queue.

    The process that has the session open is told; without one the mark is stored, and the next process that opens the
    session with its code cleans up.
    """
    config = load_config()
    path = find_session(config, session)
    by = asyncio.run(_abort(config, path, ConversationId(conversation), background, keep_queued))
    if as_json:
        emit({"aborted": conversation, "by": by})
    else:
        say(
            f"conversation {conversation}: abort stored"
            + (
                f" by process {by}, which has the session open"
                if by
                else "; cleanup runs when the session is next opened"
            )
        )
    return 0


async def _abort(
    config: Config, path: Path, conversation: ConversationId, background: bool, keep_queued: bool
) -> int | None:
    owner = read_owner(path)
    if owner is not None and owner.get("control"):
        answer = await ask_owner(
            str(owner["control"]),
            {"do": "abort", "conversation": conversation, "background": background, "keep_queued": keep_queued},
        )
        return int(answer["pid"])
    async with marking(path, config) as harness:
        await harness.actions.abort(conversation, background=background, keep_queued=keep_queued)
    return None
