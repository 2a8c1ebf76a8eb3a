"""A host as the orchestrator starts it: a process, a socket, a scripted model."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from perdure.subagents.evidence import read_evidence
from perdure.subagents.host.link import HostLink
from perdure.subagents.names import execution_id
from perdure.subagents.paths import StateRoot
from perdure.subagents.protocol import Evidence, Launch, News
from tests.subagents import scripted

REPO = Path(__file__).parents[2]
WID = "01testworkflow00"


class Bench:
    """One call's folder and script."""

    def __init__(self, folder: Path, script: dict[str, Any], key: str = "a") -> None:
        self.root = StateRoot(folder / "home")
        self.key = key
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)
        self.script_folder = folder / "script"
        self.script_folder.mkdir(exist_ok=True)
        self.script(script)
        self.root.path.mkdir(parents=True, exist_ok=True)
        self.root.config.write_text(json.dumps({"models": "tests.subagents.scripted:Scripted"}))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment: dict[str, str] = {}

    def script(self, script: dict[str, Any]) -> None:
        (self.script_folder / "script.json").write_text(json.dumps(script))

    def launch(self, number: int = 1, **more: Any) -> Launch:
        """The launch of an attempt of a generation, the first one unless another is given."""
        generation = more.get("generation", 1)
        given = {
            "exec": execution_id(WID, 1, self.key, generation, number, 1), "wid": WID, "key": self.key, "generation": 1,
            "cwd": str(self.work), "model": "test:one", "task": "Do it", "task_id": f"task:{generation}",
            "agent": {"prompt": "P."},
            "resumed": number > 1,
        }  # fmt: skip
        return Launch(**{**given, **more})

    def start(self, launch: Launch, nonce: str = "n1") -> subprocess.Popen[bytes]:
        env = {
            **os.environ, "PERDURE_HOME": str(self.root.path), "PERDURE_EXEC": launch.exec, "PERDURE_NONCE": nonce,
            "PERDURE_CALL": f"{launch.wid}/{launch.key}", "PYTHONPATH": f"{REPO / 'src'}{os.pathsep}{REPO}",
            "PERDURE_TEST_SCRIPT": str(self.script_folder), **self.environment,
        }  # fmt: skip
        found = subprocess.Popen([sys.executable, "-P", "-m", "perdure.subagents.host"], env=env, cwd=self.work)
        self.processes.append(found)
        return found

    async def connect(self, launch: Launch) -> HostLink:
        async with asyncio.timeout(20):
            while True:
                try:
                    return await HostLink.connect(self.root, launch.exec)
                except (FileNotFoundError, ConnectionRefusedError):
                    await asyncio.sleep(0.01)

    @asynccontextmanager
    async def host(self, launch: Launch) -> AsyncIterator[HostLink]:
        """A host that has begun."""
        self.start(launch)
        link = await self.connect(launch)
        try:
            assert await link.begin(launch, "n1") == "begun"
            yield link
        finally:
            await link.disconnect()
            self.kill()

    def kill(self) -> None:
        """Kill all hosts."""
        for process in self.processes:
            process.kill()
            process.wait()

    async def evidence(self, launch: Launch) -> Evidence:
        return await read_evidence(self.root.call_store(launch.wid, launch.key), launch.exec, launch.generation)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return scripted.requests(self.script_folder)

    async def asked(self, count: int) -> None:
        """Wait until so many requests have come to the models."""
        async with asyncio.timeout(20):
            while len(self.requests) < count:  # noqa: ASYNC110 - another process writes them
                await asyncio.sleep(0.005)


async def until(
    link: HostLink, what: str, seen: list[News] | None = None, where: Callable[[News], bool] = bool
) -> News:
    """The next news of a kind."""
    async with asyncio.timeout(20):
        async for news in link.news():
            if seen is not None:
                seen.append(news)
            if news.what == what and where(news):
                return news
    raise AssertionError(f"the host hung up before {what!r}")
