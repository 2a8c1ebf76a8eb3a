"""`perdure agents` in a place of its own, as a process."""

import json
import os
import subprocess
import sys
import time
from typing import Any

from tests.subagents.place import Place


class Commands:
    """Runs `perdure agents` in a place."""

    def __init__(self, here: Place) -> None:
        self.here = here

    def run(self, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PERDURE_HOME": str(self.here.root.path)}
        return subprocess.run(
            [sys.executable, "-m", "perdure.cli", "agents", *arguments],
            cwd=self.here.work,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def json(self, *arguments: str, code: int = 0) -> Any:
        done = self.run(*arguments)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def sealed(self, name: str) -> Any:
        deadline = time.monotonic() + 30
        while (found := self.json("describe", name))["state"] != "sealed":
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found
