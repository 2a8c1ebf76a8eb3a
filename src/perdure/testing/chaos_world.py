"""The world of one chaos scenario: a state root of its own, real processes, and a parent that can be killed."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure import ROOT, UserMessage
from perdure.models.messages import decode_messages
from perdure.session.reader import read_session
from perdure.subagents import events, rows, starter
from perdure.subagents.client import Client, Outcome, reading
from perdure.subagents.describe import describe
from perdure.subagents.host.documents import MarkerDoc
from perdure.subagents.paths import StateRoot
from perdure.subagents.state import Event, ExecutionDoc
from perdure.testing.chaos_parent import NOTICE
from perdure.testing.scripted_hosts import requests

SECONDS = 40.0
PASSED_ON = ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
"""All of the environment that the processes get: no credentials are read."""
FLOW = """
async def main(runs, args):
    writer = await runs.run("writer", {"agent": "worker", "task": "Write the page.", **args.writer})
    if not writer.ok:
        return {"ended": "writer", "status": writer.status}
    reviewer = await runs.run("reviewer", {"agent": "reviewer", "task": "Review: " + writer.output})
    if not reviewer.ok or "rejected" in reviewer.output:
        return {"ended": "reviewer", "status": reviewer.status}
    integrator = await runs.run("integrator", {"agent": "worker", "task": "Integrate: " + reviewer.output})
    return {"ended": "integrator", "status": integrator.status, "output": integrator.output}
"""


class Broken(Exception):
    """A scenario or an invariant does not hold."""


class World:
    """Everything of one scenario, in one temporary folder."""

    def __init__(self, script: dict[str, Any], writer: dict[str, Any] | None = None, **constants: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-chaos-"))
        self.root = StateRoot(self.folder / "home")
        self.root.path.mkdir()
        self.work = self.folder / "work"
        self.work.mkdir()
        (self.folder / "script.json").write_text(json.dumps(script))
        config = {
            "models": "perdure.testing.scripted_hosts:Scripted", "defaultModel": "test/one",
            "memory": {"reserveMb": 0, "perChildMb": 1}, "k": {"idleExitMs": 2000, **constants},
        }  # fmt: skip
        self.root.config.write_text(json.dumps(config))
        run = {"options": {"source": FLOW, "cwd": str(self.work), "args": {"writer": writer or {}}}, "request": "flow"}
        (self.folder / "run.json").write_text(json.dumps(run))
        self.environment = {
            **{name: value for name, value in os.environ.items() if name in PASSED_ON},
            "PERDURE_HOME": str(self.root.path), "PERDURE_TEST_SCRIPT": str(self.folder),
            "HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self._runtime()),
        }  # fmt: skip
        self.parent: subprocess.Popen[bytes] | None = None
        self.killed = 0

    def _runtime(self) -> Path:
        folder = self.folder / "run"
        folder.mkdir(mode=0o700)
        return folder

    # doing

    def start_parent(self) -> None:
        """Open the parent session, or open it again."""
        with open(self.folder / "parent.log", "ab") as log:
            self.parent = subprocess.Popen(
                [sys.executable, "-m", "perdure.testing.chaos_parent", str(self.folder)],
                env=self.environment, stdout=log, stderr=log, cwd=self.work,
            )  # fmt: skip

    def kill_parent(self) -> None:
        """SIGKILL."""
        if self.parent is not None:
            self.parent.kill()
            self.parent.wait()
            self.killed += 1

    def kill_orchestrator(self) -> None:
        """SIGKILL."""
        card = starter.running(self.root)
        if card is not None:
            os.kill(card.pid, signal.SIGKILL)
            self.killed += 1

    async def send(self, kind: Any, to: str, message: str, request: str, **more: Any) -> Outcome:
        """A send of the parent's."""
        sender = Client(self.root, (self.folder / "parent.id").read_text())
        return await sender.ask(kind, {"to": to, "message": message, **more}, request=request, wait=30.0)

    # seeing

    async def until(
        self, what: str, condition: Callable[[dict[str, Any]], Any], seconds: float = SECONDS
    ) -> dict[str, Any]:
        """Wait for a state of the workflow. Raises `Broken`."""
        deadline = time.monotonic() + seconds
        while True:
            found = await self.described()
            if condition(found):
                return found
            if time.monotonic() > deadline:
                raise Broken(f"it did not come to this: {what}; state {json.dumps(found)[:1500]}")
            await asyncio.sleep(0.03)

    async def sealed(self) -> dict[str, Any]:
        """The ended workflow, once the parent was told."""
        found = await self.until("the workflow ends", lambda found: found["state"] == "sealed")
        deadline = time.monotonic() + SECONDS
        while not any("finished" in text for text in await self.told()):
            if time.monotonic() > deadline:
                raise Broken("the parent was not told that it has ended")
            await asyncio.sleep(0.03)
        return found

    async def described(self) -> dict[str, Any]:
        """What `describe` says of the run."""
        async with reading(self.root) as reader:
            return await describe(reader, self.root, "flow")

    async def call(self, key: str) -> dict[str, Any]:
        """A call of the workflow as described; empty where it was not proposed."""
        return next((call for call in (await self.described()).get("calls", []) if call["key"] == key), {})

    async def log(self) -> list[Event]:
        """All events."""
        async with reading(self.root) as reader:
            if reader is None:
                return []
            epoch = (await events.head(reader)).partition(".")[0]
            return (await events.after(reader, f"{epoch}.0")).events

    async def told(self) -> list[str]:
        """The notices in the parent's transcript, in order."""
        texts = await self._texts(self.folder / "parent.db")
        return [text for text in texts if text.startswith(NOTICE)]

    async def users(self, key: str) -> list[str]:
        """What was said to a call, in order."""
        found = await self.described()
        return await self._texts(self.root.call_store(found["wid"], key))

    async def _texts(self, store: Path) -> list[str]:
        if not store.exists():  # noqa: ASYNC240
            return []
        async with read_session(store) as reader:
            storage = await reader.store.settled()
            entries = await storage.scan_entries(ROOT, limit=1000)
            return [
                str(message.content)
                for entry in entries
                for message in decode_messages(entry.messages)
                if isinstance(message, UserMessage)
            ]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """All requests that came to models of subagents."""
        return requests(self.folder)

    # invariants

    async def check(self, *, notices: int = 1, questions: int = 0) -> dict[str, int]:
        """The invariants; what is counted. Raises `Broken`."""
        found, log = await self.described(), await self.log()
        counts = {"duplicates": 0, "lost": 0, "restarted": 0}
        seals: dict[str, int] = {}
        for event in log:
            if event.type == "sealed":
                seals[str(event.call)] = seals.get(str(event.call), 0) + 1
            elif event.call in seals and event.type in ("started", "model", "asking"):
                raise Broken(f"{event.call} went on after its seal: {event.type}")
        counts["duplicates"] += sum(count - 1 for count in seals.values())
        counts["lost"] += sum(call["phase"] != "sealed" for call in found["calls"])
        for call in found["calls"]:
            counts["restarted"] += await self._restarts(found["wid"], call["key"])
        async with reading(self.root) as reader:
            assert reader is not None
            if await rows.keys(reader, ExecutionDoc):
                raise Broken("executions are left that are not proven gone")
        finished = [text for text in await self.told() if text.startswith(f"{NOTICE} finished ")]
        if len(finished) != notices:
            raise Broken(f"{len(finished)} notices of the end")
        if len(await self.told()) != len(set(await self.told())):
            raise Broken("a notice was presented twice")
        if len(await self.told()) > 2 * len(found["calls"]) + questions + 1:
            raise Broken(f"the parent was woken {len(await self.told())} times")
        if any(counts.values()):
            raise Broken(f"counted {counts}")
        return counts

    async def _restarts(self, wid: str, key: str) -> int:
        """How often a call's task was handed over again."""
        tasks = [
            text
            for text in await self._texts(self.root.call_store(wid, key))
            if text.startswith(("Write", "Review", "Integrate"))
        ]
        if len(tasks) != 1:
            return abs(len(tasks) - 1)
        async with read_session(self.root.call_store(wid, key)) as reader:
            if not await reader.document_keys(MarkerDoc, limit=100):
                raise Broken(f"no execution left its marker in the session of {key}")
        return 0

    def end(self, keep: bool) -> None:
        """Kill what is left; remove the folder unless it is evidence."""
        self.kill_parent()
        self.kill_orchestrator()
        wanted = f"PERDURE_HOME={self.root.path}".encode()
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    if wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                        os.kill(int(entry), signal.SIGKILL)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
