"""`perdure resume`: interrupted work goes on."""

import asyncio

import click

from perdure.agent.documents import LiveDoc
from perdure.base.ids import SubmissionId
from perdure.cli.ask import answer
from perdure.cli.config import Config, load_config
from perdure.cli.open import running
from perdure.cli.session_names import find_session
from perdure.cli.show import emit, note
from perdure.harness.submission import Submission


@click.command("resume")
@click.argument("session")
@click.option("--app", help="module:registry with extensions of your own.")
@click.option("--json", "as_json", is_flag=True, help="Events as JSON lines on stdout.")
def command(session: str, app: str | None, as_json: bool) -> int:
    """Go on with a session whose process ended in the middle of its work, and print the answer.

    \b
    perdure resume fix
    """
    return asyncio.run(_resume(load_config(), session, app, as_json))


async def _resume(config: Config, session: str, app: str | None, as_json: bool) -> int:
    async with running(find_session(config, session), config, app=app) as harness:
        root = await harness.root()
        live = await harness.session.value_of(LiveDoc, root.id)
        run = None if live is None else live["run"]
        await harness.resume()
        if run is None:
            await root.wait_idle()
            if as_json:
                emit({"type": "idle"})
            else:
                note("nothing to go on with")
            return 0
        submission = Submission(harness, root.id, SubmissionId(run["inputs"][-1]))
        return await answer(harness, root, submission, session, as_json)
