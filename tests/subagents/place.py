"""A state root with a scripted model: the real orchestrator and real hosts, driven by a client."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from perdure.subagents import rows, starter
from perdure.subagents.client import Client, Outcome, reading
from perdure.subagents.describe import describe
from perdure.subagents.paths import StateRoot
from perdure.subagents.state import Call, ExecutionDoc, Workflow
from perdure.subagents.status import slots
from tests.subagents import scripted

REPO = Path(__file__).parents[2]


class Place:
    """One state root, its script, and whoever sends requests to it."""

    def __init__(self, folder: Path, script: dict[str, Any], **config: Any) -> None:
        self.root = StateRoot(folder / "home")
        self.root.path.mkdir(parents=True)
        self.work = folder / "work"
        self.work.mkdir()
        self.script_folder = folder / "script"
        self.script_folder.mkdir()
        self.script(script)
        self.configure(**config)
        os.environ["PERDURE_TEST_SCRIPT"] = str(self.script_folder)
        os.environ["PYTHONPATH"] = f"{REPO / 'src'}{os.pathsep}{REPO}"
        self.client = Client(self.root, "cli:test@here", origin="parent")

    def script(self, script: dict[str, Any]) -> None:
        (self.script_folder / "script.json").write_text(json.dumps(script))

    def configure(self, **config: Any) -> None:
        given = {"models": "tests.subagents.scripted:Scripted", "defaultModel": "test/one", **config}
        given["memory"] = {"reserveMb": 0, "perChildMb": 1, **given.get("memory", {})}
        self.root.config.write_text(json.dumps(given))

    async def run(self, request: str | None = None, wait: float = 30.0, **body: Any) -> Outcome:
        return await self.client.ask("run", {"cwd": str(self.work), **body}, request=request, wait=wait)

    async def single(self, request: str | None = None, key: str = "a", task: str = "Do it", **more: Any) -> str:
        outcome = await self.run(request, agent="worker", task=task, key=key, **more)
        assert outcome.state == "applied", outcome
        return str(outcome.reply["wid"])

    async def described(self, name: str) -> dict[str, Any]:
        async with reading(self.root) as reader:
            return await describe(reader, self.root, name)

    async def until(
        self, name: str, condition: Callable[[dict[str, Any]], bool], seconds: float = 60.0
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(seconds):
                while not condition(found := await self.described(name)):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"it did not come to that: {json.dumps(found)[:3000]}") from None
        return found

    async def sealed(self, name: str, seconds: float = 60.0) -> dict[str, Any]:
        return await self.until(name, lambda found: found["state"] == "sealed", seconds)

    async def workflow(self, wid: str) -> Workflow:
        async with reading(self.root) as reader:
            assert reader is not None
            found = await rows.workflow(reader, wid)
            assert found is not None
            return found

    async def call(self, wid: str, key: str = "a") -> Call:
        async with reading(self.root) as reader:
            assert reader is not None
            found = await rows.call(reader, wid, key)
            assert found is not None
            return found

    async def slots(self) -> dict[str, int]:
        """Slots that are held, by provider."""
        async with reading(self.root) as reader:
            assert reader is not None
            return await slots(reader)

    async def kill_host(self, wid: str, key: str = "a") -> None:
        """Kill the host of a call."""
        async with reading(self.root) as reader:
            assert reader is not None
            for execution in await rows.rows(reader, ExecutionDoc):
                if (execution.wid, execution.key) == (wid, key) and execution.pid is not None:
                    os.kill(execution.pid, signal.SIGKILL)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return scripted.requests(self.script_folder)

    async def asked(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.requests) < count:  # noqa: ASYNC110 - another process writes them
                await asyncio.sleep(0.01)

    def kill_orchestrator(self, number: int = signal.SIGKILL) -> None:
        card = starter.running(self.root)
        if card is not None:
            with suppress(ProcessLookupError):
                os.kill(card.pid, number)

    def kill_hosts(self) -> None:
        """Kill the hosts of this root, and nothing else."""
        for pid in self.processes():
            if b"perdure.subagents.host" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """All that carry this root in their environment, but this process."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with suppress(OSError):
                    environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                    if f"PERDURE_HOME={self.root.path}".encode() in environment:
                        found.append(int(entry))
        return found

    def kill_evaluators(self) -> None:
        """Kill the processes that run scripts for this root's orchestrator."""
        card = starter.running(self.root)
        if card is not None:
            subprocess.run(["pkill", "-9", "-P", str(card.pid), "-f", "_child import main"], check=False)

    async def gone(self) -> None:
        async with asyncio.timeout(30):
            while starter.running(self.root) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def end(self) -> None:
        """Kill everything of this root."""
        self.kill_orchestrator()
        for pid in self.processes():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
