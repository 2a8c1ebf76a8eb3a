"""An agent that waits overnight without a process: in the evening it parks and exits, a signed webhook wakes it."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from standardwebhooks import Webhook

from perdure import HOUR, Error, Extension, Harness, Registry, Signal, Sleep, StorageInUse, TaskId, ToolContext
from perdure.testing.scripted_model import ScriptedModel, call, say

SECRET: Final = "whsec_cGVyZHVyZS1leGFtcGxlLXNlY3JldA=="  # a real one comes from where secrets are kept
BODY_BYTES: Final = 64 * 1024
"""Read at most, before anything is parsed: a signal carries a reference, never what is large."""
Message = MutableMapping[str, Any]

Done: Signal[dict[str, str]] = Signal("ops.ci-done", version=1, schema=dict[str, str])


class Expectations:
    """Who waits for which webhook. A file of the host's own: it is asked while no session is open."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(
            path, isolation_level=None
        )  # each statement is a transaction, on the disk at its end
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS expected"
            " (match TEXT PRIMARY KEY, session TEXT, task INT, signal TEXT, key TEXT)"
        )

    async def expect(self, session: str, match: str, task: TaskId, signal: Signal[Any], key: str) -> None:
        """The webhook about `match` is for this key of this task. Saying it again changes nothing; something else is
        refused: somebody would wait in vain."""
        wanted = (match, session, int(task), signal.name, key)
        self._db.execute("INSERT OR IGNORE INTO expected VALUES (?, ?, ?, ?, ?)", wanted)
        if self._db.execute("SELECT * FROM expected WHERE match = ?", (match,)).fetchone() != wanted:
            raise Error(f"{match!r} is expected by another task")

    def find(self, match: str) -> tuple[str, int, str, str] | None:
        """Session, task, signal and key."""
        found: tuple[str, int, str, str] | None = self._db.execute(
            "SELECT session, task, signal, key FROM expected WHERE match = ?", (match,)
        ).fetchone()
        return found

    def close(self) -> None:
        self._db.close()


class Receiver:
    """The route of the webhooks, as an ASGI application: any server can serve it.

    Whoever cannot sign learns nothing, and whoever can does not learn which matches are waited for.
    """

    def __init__(self, expectations: Expectations, secret: str, deliver: Callable[..., Awaitable[None]]) -> None:
        self._expectations = expectations
        self._webhook = Webhook(secret)
        self._deliver = deliver

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        status = await self._handle(scope, receive)
        headers = [(b"content-length", b"0"), *([(b"retry-after", b"5")] if status == 503 else [])]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _handle(self, scope: Message, receive: Any) -> int:
        if scope["method"] != "POST":
            return 405
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > BODY_BYTES:
                return 413
            if not message.get("more_body"):
                break
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            data = self._webhook.verify(body, headers)
        except Exception:  # a header may be broken in more ways than the library has errors for
            return 401
        match = data.get("run") if isinstance(data, dict) else None
        found = self._expectations.find(match) if isinstance(match, str) else None
        if found is not None:
            try:
                await self._deliver(*found, {"result": str(data.get("result"))})
            except StorageInUse:
                return 503  # the session is busy elsewhere: the sender tries again, as senders of webhooks do
        return 202


# the agent


def build(folder: Path, expectations: Expectations) -> Registry:
    ops = Extension("ops", signals=[Done])

    @ops.tool(replay="safe")
    async def run_ci(ctx: ToolContext, ref: str) -> str | Sleep:
        """Run CI on a git ref and report the result."""
        state = await ctx.read_signal(Done, "done")
        if state is not None:
            return "it never reported" if state.expired else f"the build {state.value['result']}"
        run = await ctx.memo("ci.run", f"run-{ctx.task_id}")
        await expectations.expect("night", run, ctx.task_id, Done, "done")  # first: a fast webhook finds it
        (folder / "triggered").write_text(run)  # the build server's part
        print("  triggered the build of", ref)
        return Sleep(signals=[Done.key("done")], until=ctx.now() + 12 * HOUR)

    return Registry([ops])


def opened(folder: Path, expectations: Expectations) -> Any:
    models = ScriptedModel.by_progress([call("run_ci", {"ref": "main"}), say("The build passed: I have merged it.")])
    return Harness.open(folder / "night.db", registry=build(folder, expectations), models=models)


async def evening(folder: Path) -> None:
    """A process that ends as soon as nothing runs."""
    expectations = Expectations(folder / "host.db")
    async with opened(folder, expectations) as harness:
        root = await harness.root(model="scripted:model")
        await root.submit("Merge main when it is green", request_id="merge")
        wake = await harness.wait_parked()  # a host keeps `wake.at` somewhere, for its alarm
        hours = ((wake.at or 0) - datetime.now(UTC).timestamp()) / HOUR
        print(f"  parked; the alarm is in about {hours:.0f} hours")
    expectations.close()


async def night(folder: Path) -> None:
    """The process that serves webhooks; it has the session open only while there is something to do."""
    expectations = Expectations(folder / "host.db")

    async def deliver(session: str, task: int, signal: str, key: str, data: dict[str, str]) -> None:
        async with opened(folder, expectations) as harness:
            print(f"  {session}: {await harness.signal_json(task, signal, key, data)}")
            await harness.wait_parked()

    receiver = Receiver(expectations, SECRET, deliver)
    run = (folder / "triggered").read_text()
    sent = signed({"run": run, "result": "passed"})
    print("  forged:", await post(receiver, sent[0], {**sent[1], "webhook-signature": "v1,bm90IHNpZ25lZA=="}))
    print("  about something else:", await post(receiver, *signed({"run": "run-of-others", "result": "passed"})))
    print("  too large:", await post(receiver, b"x" * 100_000, {}))
    print("  the real one:", await post(receiver, *sent))
    print("  once more:", await post(receiver, *sent))
    expectations.close()


async def morning(folder: Path) -> None:
    expectations = Expectations(folder / "host.db")
    async with opened(folder, expectations) as harness:
        root = await harness.root()
        print(" ", (await (await root.submit("Merge main when it is green", request_id="merge")).wait()).text)
    expectations.close()


def signed(data: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    """What the build server sends."""
    body, now = json.dumps(data), datetime.now(UTC)
    signature = Webhook(SECRET).sign("msg_1", now, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
    return body.encode(), headers


async def post(app: Receiver, body: bytes, headers: dict[str, str], method: str = "POST") -> int:
    """One request, as a server hands it to an application."""
    sent: list[Message] = []
    pieces = [body[at : at + 16_384] for at in range(0, len(body), 16_384)] or [b""]

    async def receive() -> Message:
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await app({"type": "http", "method": method, "path": "/hook", "headers": raw}, receive, send)
    return int(sent[0]["status"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("evening", "night", "morning"):
            print(f"{name}: a process of its own", flush=True)
            subprocess.run([sys.executable, __file__, name, folder], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run({"evening": evening, "night": night, "morning": morning}[sys.argv[1]](Path(sys.argv[2])))
    else:
        main()
