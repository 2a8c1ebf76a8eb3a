"""A shop whose tool meets trouble, and short ways to make the trouble and to see what those who wait are told."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Extension, Harness, Registry, Settings
from perdure.storage.protocol import Durability
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.scripted_model import ScriptedModel, call, say

DURABILITIES: tuple[Durability, ...] = ("power", "process")
PATIENCE = 10.0
"""Seconds after which somebody who still waits hangs."""
LONG_RESULT = "x" * 190_000

Trouble = Callable[[], Awaitable[None]]


class Shop:
    """A tool that must not run twice, with trouble in its middle, and one that may."""

    def __init__(self, trouble: Trouble | None = None) -> None:
        self.paid = 0
        self.go = asyncio.Event()
        """Set once everybody waits: the trouble may come."""
        self._trouble = trouble
        self.extension = Extension("shop")
        self.extension.tool(description="Pay.")(self.pay)
        self.extension.tool(description="Look whether it was paid.", replay="safe")(self.look)

    async def pay(self, ctx: Any) -> str:
        self.paid += 1
        if self._trouble is not None:
            await self.go.wait()
            await self._trouble()
        return LONG_RESULT

    async def look(self, ctx: Any) -> str:
        return f"paid {self.paid} times"

    def harness(self, path: Path, durability: Durability) -> Any:
        """The session at a path, about to be opened: pay, look, tell; then one more answer."""
        model = ScriptedModel.by_progress([call("pay"), call("look"), say("Paid once."), say("Still here.")])
        storage = SqliteStorage(path, durability=durability, busy_timeout=0.2)
        settings = Settings(close_timeout=2.0, progress_interval=0.002)
        return Harness.open(storage, registry=Registry([self.extension]), models=model, settings=settings)


async def caught(waiter: Awaitable[Any]) -> BaseException:
    """What somebody who waits gets; a hang is a failure."""
    try:
        async with asyncio.timeout(PATIENCE):
            await waiter
    except TimeoutError as error:
        raise AssertionError("somebody waits for ever") from error
    except Exception as error:
        return error
    raise AssertionError("the wait ended as if nothing had happened")


def mount(disk: Path, *options: str) -> None:
    """Mount something, or skip the test and say why."""
    if os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting needs root")
    done = subprocess.run(["mount", *options, str(disk)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"mounting is not possible here: {done.stderr.strip()}")


def unmount(disk: Path) -> None:
    """Take it away again."""
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def files_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())
