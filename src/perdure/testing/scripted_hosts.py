"""Models of subagents offline: what each call is told lies in a file, and every request is noted in another.

`PERDURE_TEST_SCRIPT` names a folder with `script.json`: lists of turns by key of the call (`*` for all others), and
`requests.log`, a line of JSON for each request: who asked which model, and all that it was given. Turn n answers a
request that holds n answers, the last one all further ones, so any process tells the same.

A turn is `{"say": text}`, `{"call": tool, "args": {…}}` or a list of calls, `{"fail": text, "kind": code}`. Besides:
`hold`: seconds that it takes before it begins; `between`: seconds between its pieces; `cut`: it breaks off after so
many pieces; `stop`: how it ends (`length`, `refusal`); `usage`: its tokens; `first`: turns that come before it, for the
first requests of its place (`once` for a single one).
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure import AssistantMessage, Usage
from perdure.models import errors
from perdure.models.errors import CutOff, ModelError
from perdure.models.protocol import ModelRequest
from perdure.testing.scripted_model import ScriptedModel, Turn, call, cut, fail, say
from perdure.testing.turns import as_turn


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
        seen = sum(line["key"] == self._key and line["done"] == done for line in requests(folder()))
        line = {
            "key": self._key, "exec": os.environ["PERDURE_EXEC"], "model": name, "done": done,
            "provider": name.partition(":")[0],
            "messages": [[message.role, message.text] for message in request.messages],
            "tools": [tool.name for tool in request.tools], "system": request.system,
            "full": msgspec.to_builtins(request.messages),
        }  # fmt: skip
        with open(folder() / "requests.log", "a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        first = [due["once"]] if "once" in due else due.get("first", []) if isinstance(due, dict) else []
        return made(first[seen] if seen < len(first) else due)


KINDS: Final[dict[str, Any]] = {
    "drop": CutOff,
    "fatal": ModelError,
    **{one.code: one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, ModelError)},
}
"""Errors of providers, by their codes."""


def made(turn: dict[str, Any] | list[Any]) -> Turn:
    """A turn of the scripted model."""
    if isinstance(turn, list):
        return as_turn([call(one["call"], one.get("args", {})) for one in turn])
    if "fail" in turn:
        return fail(KINDS[turn.get("kind", "drop")](turn["fail"]))
    found = call(turn["call"], turn.get("args", {})) if "call" in turn else say(turn.get("say", ""))
    if "usage" in turn:
        found = found.with_usage(msgspec.convert(turn["usage"], Usage))
    if "stop" in turn:
        found = msgspec.structs.replace(found, stop=turn["stop"])
    if "hold" in turn or "between" in turn:
        found = found.after(turn.get("hold", 0.0), between=turn.get("between", 0.0))
    return cut(turn["cut"], found) if "cut" in turn else found


def requests(where: Path) -> list[dict[str, Any]]:
    """All requests so far; a line that is being written is none yet."""
    path = where / "requests.log"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []
