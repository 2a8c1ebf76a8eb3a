"""Recovery: a process is killed with -9 in the middle of three parallel calls. The next one carries on."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from perdure import Extension, Harness, Registry
from perdure.models.messages import ToolResultMessage
from perdure.testing.scripted_model import ScriptedModel, call, say


def extension(folder: Path) -> Extension:
    ops = Extension("ops")

    def really(what: str) -> None:
        with open(folder / "ledger", "a") as ledger:
            ledger.write(what + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())

    @ops.tool
    async def pay(ctx: Any) -> str:
        """Pay the invoice (finishes before the crash)."""
        really("pay")
        return "paid"

    @ops.tool
    async def ship(ctx: Any) -> str:
        """Ship the parcel (cut off by the crash, must not be repeated)."""
        really("ship")
        while not any(entry.kind == "perdure.tool_result" for entry in await ctx.conversation().entries()):
            await asyncio.sleep(0.01)  # until the payment is stored
        (folder / "in-the-middle").touch()
        await asyncio.sleep(60)
        return "shipped"

    @ops.tool(replay="safe")
    async def look(ctx: Any) -> str:
        """Look at the order (cut off by the crash, safe to repeat)."""
        really("look")
        await asyncio.sleep(60 if not (folder / "second").exists() else 0)
        return "order 7"

    return ops


async def work(folder: Path) -> None:
    turns: list[Any] = [[call("pay"), call("ship"), call("look")], say("Paid; the shipping has to be checked.")]
    registry = Registry([extension(folder)])
    async with Harness.open(folder / "agent.db", registry=registry, models=ScriptedModel.by_progress(turns)) as harness:
        root = await harness.root(model="scripted:model")
        submission = await root.submit("Handle order 7", request_id="order-7")
        print("agent:", (await submission.wait()).text)
        for message in await root.messages():
            if isinstance(message, ToolResultMessage):
                print(f"{message.name:<5}", str(message.content).split(":")[0])


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(work(Path(sys.argv[1])))
        return
    folder = Path(tempfile.mkdtemp())
    with subprocess.Popen([sys.executable, __file__, str(folder)]) as child:
        while not (folder / "in-the-middle").exists() or (folder / "ledger").read_text().count("\n") < 3:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    print("killed with -9")
    (folder / "second").touch()
    asyncio.run(work(folder))
    print("really happened:", sorted((folder / "ledger").read_text().split()))


if __name__ == "__main__":
    main()
