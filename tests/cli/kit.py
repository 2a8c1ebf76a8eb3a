"""A command line run as people run it: a process, a folder of sessions, a model server on loopback."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perdure.testing.fake_openai import FakeOpenAI
from perdure.testing.fake_turns import by_progress

SRC = str(Path(__file__).parents[2] / "src")


class Cli:
    """Runs `perdure` with its sessions in one folder and its working directory in a scratch repository."""

    def __init__(self, folder: Path, base_url: str | None = None) -> None:
        self.sessions = folder / "sessions"
        self.repo = folder / "repo"
        self.repo.mkdir()
        self.environment = {
            key: value for key, value in os.environ.items() if not key.endswith("_API_KEY") and key != "PERDURE_DEBUG"
        }
        self.environment |= {
            "PYTHONPATH": SRC,
            "PERDURE_SESSIONS": str(self.sessions),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_RUNTIME_DIR": tempfile.mkdtemp(prefix="perdure-test-"),
        }
        if base_url is not None:
            self.environment["OPENAI_BASE_URL"] = base_url

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        """A command that goes on while the test does."""
        return subprocess.Popen(
            [sys.executable, "-m", "perdure.cli", *arguments],
            cwd=self.repo,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(self, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        """A command from beginning to end."""
        return subprocess.run(
            [sys.executable, "-m", "perdure.cli", *arguments],
            cwd=self.repo,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def sockets(self) -> list[Path]:
        """Control sockets that lie there now."""
        return list(Path(self.environment["XDG_RUNTIME_DIR"]).glob("perdure/*.sock"))

    def json(self, *arguments: str) -> Any:
        """What a command says to a program."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@contextmanager
def server(*turns: dict[str, Any]) -> Iterator[FakeOpenAI]:
    """A model server that knows how far each conversation has come."""
    with FakeOpenAI(by_progress(turns)) as running:
        yield running


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def kill(process: "subprocess.Popen[str]") -> None:
    """kill -9."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


def alive(marker: str) -> bool:
    """Whether any process has the marker in its command line."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if marker.encode() in file.read():
                        return True
            except OSError:
                continue
    return False
