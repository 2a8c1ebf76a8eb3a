"""The harness: one store, many conversations, exactly-once submissions, and a second opener told who has it."""

import asyncio
import tempfile
from pathlib import Path

from perdure import Harness, RequestConflict, StorageInUse
from perdure.testing.scripted_model import ScriptedModel, say


async def main() -> None:
    path = Path(tempfile.mkdtemp()) / "agent.db"
    async with Harness.open(path, models=ScriptedModel([say("done")])) as harness:
        root = await harness.root(model="scripted:model")
        first = await root.submit("Deploy it", request_id="job-42")
        again = await root.submit("Deploy it", request_id="job-42")
        print("the same submission:", first.id == again.id, "->", (await again.wait()).text)
        try:
            await root.submit("Deploy something else", request_id="job-42")
        except RequestConflict as error:
            print("other content:", error.code)
        try:
            await Harness.open(path)
        except StorageInUse as error:
            print("a second opener:", error.code, "by this process:", error.owner["pid"] is not None)
        thread = await root.fork((await first.wait()).entry_id, key="slack:1700000000")
        same = await root.fork((await first.wait()).entry_id, key="slack:1700000000")
        print("a fork under a key is made once:", thread.id == same.id)
        print("nothing runs:", harness.wake())
    async with Harness.open(path, models=ScriptedModel([])) as harness:
        root = await harness.root()
        again = await root.submit("Deploy it", request_id="job-42")
        print("after a restart:", (await again.wait()).text)


asyncio.run(main())
