"""Models of hosts under test: what each call is told lies in a file, and every request is noted in another.

`PERDURE_TEST_SCRIPT` names a folder with `script.json`: lists of turns by key of the call, and `requests.log`.
A turn is `{"say": text}`, `{"call": tool, "args": {…}}` or a list of calls, `{"fail": text}`. With `"hold": seconds` it
takes its time; with `"once": turn` that one comes first, the first time that it is due.
"""

import json
import os
from pathlib import Path
from typing import Any

from perdure import AssistantMessage, Usage
from perdure.models.errors import CutOff, Overloaded
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, call, fail, say


def folder() -> Path:
    return Path(os.environ["PERDURE_TEST_SCRIPT"])


class Scripted:
    """All models, by any name."""

    def __init__(self) -> None:
        self._key = os.environ["PERDURE_CALL"].partition("/")[2]

    def model(self, name: str) -> Any:
        return ScriptedModel(lambda request: self._turn(name, request), name=name, strict=True).model(name)

    def cost(self, name: str, message: AssistantMessage) -> float | None:
        return 0.001 * ((message.usage or Usage(0, 0)).output)

    def _turn(self, name: str, request: ModelRequest) -> Any:
        script = json.loads((folder() / "script.json").read_text())
        turns = script.get(self._key, script.get("*", [{"say": "ok"}]))
        done = sum(isinstance(message, AssistantMessage) for message in request.messages)
        due = turns[min(done, len(turns) - 1)]
        seen = any(line["key"] == self._key and line["done"] == done for line in requests(folder()))
        line = {
            "key": self._key, "exec": os.environ["PERDURE_EXEC"], "model": name, "done": done,
            "messages": [[message.role, message.text] for message in request.messages],
            "tools": [tool.name for tool in request.tools], "system": request.system,
        }  # fmt: skip
        with open(folder() / "requests.log", "a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        if "once" in due and not seen:
            due = due["once"]
        return made(due)


def made(turn: dict[str, Any] | list[Any]) -> Any:
    """A turn of the scripted model."""
    if isinstance(turn, list):
        return [call(one["call"], one.get("args", {})) for one in turn]
    if "fail" in turn:
        kind = {"drop": CutOff, "overloaded": Overloaded}.get(turn.get("kind", ""), CutOff)
        return fail(kind(turn["fail"]))
    found = call(turn["call"], turn.get("args", {})) if "call" in turn else say(turn.get("say", ""))
    return found.after(turn["hold"]) if "hold" in turn else found


def requests(where: Path) -> list[dict[str, Any]]:
    """All requests so far."""
    path = where / "requests.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
