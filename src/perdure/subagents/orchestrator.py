"""The one process of a state root that owns its workflows: `python -m perdure.subagents.orchestrator`.

It ends by itself when nothing runs and nothing is due, and is started by whoever wants something next.
"""

import asyncio
import contextlib
import shlex
import signal
import sys
import time
from typing import Any, Final

import msgspec

from perdure import Error, Extension, Harness, Registry, Settings, StorageInUse, TaskTransaction, __version__
from perdure.base.clock import Clock
from perdure.subagents import spool, starter
from perdure.subagents.config import InEffect, InEffectDoc
from perdure.subagents.engine.call_task import CallGeneration
from perdure.subagents.engine.context import Orchestration
from perdure.subagents.engine.facade import EngineFacade
from perdure.subagents.engine.recovery import sweep
from perdure.subagents.engine.script_task import Released, ScriptRun
from perdure.subagents.engine.scripts import Evaluators
from perdure.subagents.engine.workflow_task import WorkflowRun
from perdure.subagents.evaluator.process import ProcessEvaluators
from perdure.subagents.events import counters
from perdure.subagents.file_changes import file_changes
from perdure.subagents.intake.decision import Reply
from perdure.subagents.intake.engine import Engine
from perdure.subagents.intake.intake import Intake
from perdure.subagents.intake.server import Server
from perdure.subagents.paths import StateRoot
from perdure.subagents.pokes import Poked
from perdure.subagents.processes import me
from perdure.subagents.protocol import PROTOCOL
from perdure.subagents.pruning import decide_prune, delete_pruned
from perdure.subagents.retention import COMPACT_SECONDS, compact
from perdure.subagents.starter import OrchestratorCard

CONFIG_SETTLES: Final = 0.2
INTAKE_SECONDS: Final = 1.0
"""While requests wait that cannot be decided yet, it is looked so often whether they still do."""
KILLS: Final = 1_000_000
"""Opens that find a call running say nothing about the call: orchestrators may be killed as often as somebody likes."""


class Orchestrator:
    """`async with Orchestrator(root)`: owns the store, decides requests, runs workflows. Raises `StorageInUse` where
    another one does."""

    def __init__(self, root: StateRoot, *, clock: Clock | None = None, evaluators: Evaluators | None = None) -> None:
        self.root = root
        self._clock = clock
        self._evaluators = evaluators or ProcessEvaluators()
        self._stack = contextlib.AsyncExitStack()
        self.harness: Harness
        self.orchestration: Orchestration
        self.intake: Intake
        self.server: Server
        self._since = time.time()
        self._woken = asyncio.Event()
        self._buried = asyncio.Event()
        """Set while pruned workflows may be left to delete."""

    async def __aenter__(self) -> "Orchestrator":
        self.root.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        extension = Extension("agents", tasks=[CallGeneration, WorkflowRun, ScriptRun], signals=[Poked, Released])
        self.harness = await self._stack.enter_async_context(
            Harness.open(
                str(self.root.store),
                registry=Registry([extension]),
                settings=Settings(restart_limit=KILLS, close_timeout=5.0),
                clock=self._clock,
            )
        )
        self.orchestration = Orchestration(self.root, self.harness, evaluators=self._evaluators)
        self.intake = Intake(self.root, self.harness, EngineFacade(self.orchestration), self.orchestration.report)
        self.server = Server(self.root, self.harness, self.intake, self.card)
        install_command(self.root)
        spool.write_durably(self.root.about, msgspec.json.encode(self._about()))
        self.intake.decides("prune", self._prune)
        async with self.harness.session.transaction() as tx:
            await counters(tx)  # a head that was told stays one of this log
        await self._stack.enter_async_context(self.server)
        deleting = asyncio.create_task(self._delete(), name="agents prune")
        self._stack.callback(deleting.cancel)
        compacting = asyncio.create_task(self._compact(), name="agents events")
        self._stack.callback(compacting.cancel)
        sweeping = asyncio.create_task(sweep(self.orchestration), name="agents sweep")
        self._stack.callback(sweeping.cancel)
        await self._record_settings()
        await self.harness.resume()
        await self.intake.start()
        self._stack.push_async_callback(self.intake.stop)
        self.harness.on_wake(lambda wake: self._woken.set())
        watching = asyncio.create_task(self._watch_config(), name="agents config")
        self._stack.callback(watching.cancel)
        hearing = asyncio.create_task(self._hear_senders(), name="agents inbox")
        self._stack.callback(hearing.cancel)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()
        await self.orchestration.close()
        self.root.about.unlink(missing_ok=True)

    async def _prune(self, tx: TaskTransaction, sent: spool.Sent, engine: Engine) -> Reply:
        reply = await decide_prune(tx, sent, engine)
        self._buried.set()
        return reply

    async def _delete(self) -> None:
        self._buried.set()
        while True:
            await self._buried.wait()
            async with self.harness.session.transaction():
                pass  # its turn comes once the decision is stored
            try:
                await delete_pruned(self.root, self.harness)
            except OSError as error:
                self.orchestration.report("agents prune", error)
            self._buried.clear()
            self._woken.set()

    async def _compact(self) -> None:
        """Drop old events, now and once an hour."""
        while True:
            try:
                await compact(self.harness.session, self.orchestration.config.current.k.event_retention_ms)
            except (Error, OSError) as failure:
                self.orchestration.report("agents events", failure)
            await asyncio.sleep(COMPACT_SECONDS)

    def _about(self) -> OrchestratorCard:
        pid, started = me()
        return OrchestratorCard(
            pid=pid, started=started, version=__version__, protocol=PROTOCOL, since=self._since,
            stats={"passes": self.intake.passes},
        )  # fmt: skip

    def card(self) -> dict[str, Any]:
        """What it tells of itself."""
        found: dict[str, Any] = msgspec.to_builtins(self._about())
        return found

    async def _watch_config(self) -> None:
        async for _ in file_changes(self.root.config):
            await asyncio.sleep(CONFIG_SETTLES)  # whoever saves a file may remove it, or empty it, before
            changed = await asyncio.to_thread(self.orchestration.config.look)
            await self._record_settings()
            if changed:
                await self.intake.reconsider()

    async def _hear_senders(self) -> None:
        """Whoever recorded a request tells so itself, unless it died over that."""
        async for _ in file_changes(self.root.nudge):
            self.intake.nudge()

    async def _record_settings(self) -> None:
        """What is decided by, and what is wrong with the file: status shows it, whoever asks."""
        config = self.orchestration.config
        async with self.harness.session.transaction() as tx:
            known: InEffect | None = await tx.snapshot(InEffectDoc)
            if known is None or (known.digest, known.problem) != (config.digest, config.problem):
                kept = known is not None and known.digest == config.digest
                since = known.since if known is not None and kept else tx.now_millis / 1000
                await tx.set(InEffectDoc, None, InEffect(digest=config.digest, since=since, problem=config.problem))

    @property
    def idle(self) -> bool:
        """Whether nothing runs, nothing is due at some time, and nothing waits to be decided."""
        wake = self.harness.wake()
        return not wake.active and wake.at is None and not self.intake.pending and not self._buried.is_set()

    async def run_until_idle(self) -> None:
        """Return once it has been idle for as long as the settings say."""
        while True:
            quiet = self.orchestration.config.current.k.idle_exit_ms / 1000
            self._woken.clear()
            busy = not self.idle and not self.intake.pending  # its tasks tell of their ends
            try:
                async with asyncio.timeout(None if busy else max(quiet, INTAKE_SECONDS * self.intake.pending)):
                    await self._woken.wait()
            except TimeoutError:
                if self.idle and not await asyncio.to_thread(spool.any_waiting, self.root):
                    return


def install_command(root: StateRoot) -> None:
    """What a call runs as `perdure` is what runs here, wherever that is installed."""
    root.bin.mkdir(exist_ok=True, mode=0o700)
    command = root.bin / "perdure"
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m perdure.cli "$@"\n'
    spool.write_durably(command, text.encode())
    command.chmod(0o700)


async def main() -> int:
    """Own the root that the environment names, until idle or told to end. Hung up on, it starts the next one itself:
    what a subagent's command starts would end with that command."""
    loop, told, root = asyncio.get_running_loop(), asyncio.Event(), StateRoot()
    successor = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)

    def hung_up() -> None:
        successor.set()
        told.set()

    loop.add_signal_handler(signal.SIGHUP, hung_up)
    try:
        async with Orchestrator(root) as orchestrator:
            idle = asyncio.create_task(orchestrator.run_until_idle())
            ending = asyncio.create_task(told.wait())
            await asyncio.wait({idle, ending}, return_when=asyncio.FIRST_COMPLETED)
            idle.cancel()
            ending.cancel()
    except StorageInUse:
        return 0  # there is one already
    if successor.is_set():
        starter.spawn(root)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
