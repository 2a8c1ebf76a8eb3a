"""The far side's service for files, for as long as its input is open. Sent there as text: standard library only.

Requests and answers are frames: four bytes with the length of a JSON object, eight with the length of raw bytes, then
both. Each request is served by a thread of its own, so a long search holds up nothing; answers carry its number.
"""

import errno
import json
import os
import struct
import sys
import threading
import time
from typing import Any

from perdure.env import containment, files, globbing, watching

SIZES = struct.Struct(">IQ")
_output = threading.Lock()
_watches: dict[int, threading.Event] = {}

Request = dict[str, Any]
Answer = tuple[dict[str, Any], bytes]


def main() -> None:
    """Serve until the input ends. What a thread has not finished then is left as it was: writes are whole or not."""
    source = sys.stdin.buffer
    while True:
        head = source.read(SIZES.size)
        if len(head) < SIZES.size:
            os._exit(0)
        sizes = SIZES.unpack(head)
        text, data = source.read(sizes[0]), source.read(sizes[1])
        if len(text) + len(data) < sum(sizes):
            os._exit(0)
        request = json.loads(text)
        threading.Thread(target=serve, args=(request, data), daemon=True).start()


def serve(request: Request, data: bytes) -> None:
    """Answer one request, whatever comes of it."""
    try:
        answer(request["id"], *OPERATIONS[request["op"]](request, data))
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "")
        answer(request["id"], {"error": "os", "errno": name, "text": error.strerror or str(error)})
    except UnicodeError:
        answer(request["id"], {"error": "value", "text": "it contains text that is no valid Unicode"})
    except ValueError as error:
        answer(request["id"], {"error": "value", "text": str(error)})
    except Exception as error:
        answer(request["id"], {"error": "other", "text": f"{type(error).__name__}: {error}"})


def answer(number: int, head: dict[str, Any], data: bytes = b"") -> None:
    """Send an answer; where nobody reads any more, end."""
    text = json.dumps({"id": number, **head}).encode()
    try:
        with _output:
            for piece in (SIZES.pack(len(text), len(data)) + text, data):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(1, rest) :]
    except OSError:
        os._exit(0)


def _path(request: Request) -> str:
    return os.path.join(files.home(), files.under_home(request["cwd"]), files.under_home(request["path"]))


def _hello(request: Request, data: bytes) -> Answer:
    return {"python": sys.executable, "system": sys.platform}, b""


def _read(request: Request, data: bytes) -> Answer:
    return {}, files.read(_path(request), request["offset"], request["limit"])


def _write(request: Request, data: bytes) -> Answer:
    files.write(_path(request), data)
    return {}, b""


def _stat(request: Request, data: bytes) -> Answer:
    return {"stat": files.stat(_path(request))}, b""


def _list(request: Request, data: bytes) -> Answer:
    return {"list": files.listing(_path(request))}, b""


def _resolve(request: Request, data: bytes) -> Answer:
    return {"path": files.resolve(_path(request))}, b""


def _glob(request: Request, data: bytes) -> Answer:
    found, complete = globbing.glob(_path(request), request["pattern"], request["limit"])
    return {"found": found, "complete": complete}, b""


def _reap(request: Request, data: bytes) -> Answer:
    return {"survivors": containment.reap(request["tag"])}, b""


def _fence(request: Request, data: bytes) -> Answer:
    left: list[str] = []
    for mark in request["marks"]:
        left += containment.end_execution(mark, None)
    return {"survivors": left}, b""


def _watch(request: Request, data: bytes) -> Answer:
    """The first answer says that the watch has begun; one follows for each change, until it is given up."""
    path, number = _path(request), request["id"]
    state = watching.look(path)
    ended = _watches[number] = threading.Event()
    answer(number, {"changes": []})
    pause = watching.PAUSE_SECONDS
    while not ended.wait(pause):
        begin = time.monotonic()
        before, state = state, watching.look_again(path)
        pause = max(watching.PAUSE_SECONDS, watching.LOOKING_SHARE * (time.monotonic() - begin))
        changes = watching.differences(before, state)
        if changes:
            answer(number, {"changes": changes})
    del _watches[number]
    return {}, b""


def _unwatch(request: Request, data: bytes) -> Answer:
    if request["watch"] in _watches:
        _watches[request["watch"]].set()
    return {}, b""


OPERATIONS = {
    "hello": _hello, "read": _read, "write": _write, "stat": _stat, "list": _list, "resolve": _resolve,
    "glob": _glob, "reap": _reap, "fence": _fence, "watch": _watch, "unwatch": _unwatch,
}  # fmt: skip
