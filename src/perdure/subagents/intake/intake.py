"""Takes requests from the inbox and decides each one once, in one commit with all that follows from it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from perdure import Document, Harness, InvalidValue, TaskTransaction, document_family
from perdure.subagents import rows, spool
from perdure.subagents.digest import request_digest
from perdure.subagents.intake.decision import NotYet, Rejected, Reply, UnknownWorkflow
from perdure.subagents.intake.engine import Engine
from perdure.subagents.intake.hold import decide_hold, decide_resume, decide_stop
from perdure.subagents.intake.run import Prepared, decide_revise, decide_run, prepare
from perdure.subagents.intake.send import decide_send
from perdure.subagents.names import check_request_id
from perdure.subagents.paths import StateRoot
from perdure.subagents.pokes import poke
from perdure.subagents.spool import SENDS, Recorded, Sent
from perdure.subagents.state import LiveDoc, Request, RequestDoc

RETRY_SECONDS: Final = 5.0
"""When what could not be decided for want of something is tried again."""
SenderDoc: Document[Any] = document_family("agents.sender", int, scope="session")
"""By folder: the number of the newest request that was decided."""

Decide = Callable[[TaskTransaction, Sent, Engine], Awaitable[Reply]]
Report = Callable[[str, BaseException], None]


class Intake:
    """The deciding side of the inbox. `nudge` when a file came; `decided` waits for a decision."""

    def __init__(self, root: StateRoot, harness: Harness, engine: Engine, report: Report) -> None:
        self._root = root
        self._harness = harness
        self._engine = engine
        self._report = report
        self._nudged = asyncio.Event()
        self._deciders: dict[str, Decide] = {
            **dict.fromkeys(SENDS, decide_send),
            "stop": decide_stop,
            **dict.fromkeys(("drain", "stop-all", "pause"), decide_hold),
            "resume": decide_resume,
        }
        self._waiters: dict[str, list[asyncio.Future[Request]]] = {}
        self._retry = False
        self._garbage: set[str] = set()
        self._loop: asyncio.Task[None] | None = None
        self.passes = 0

    def decides(self, kind: str, decide: Decide) -> None:
        """Add the decider of another kind of request."""
        self._deciders[kind] = decide

    async def start(self) -> None:
        """Decide what waits, and from now on what comes."""
        self._root.inbox.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self.take()
        self._loop = asyncio.create_task(self._run(), name="agents intake")

    async def stop(self) -> None:
        """Decide nothing more."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    def nudge(self) -> None:
        """Something may have come."""
        self._nudged.set()

    async def reconsider(self) -> None:
        """Other settings are in effect: whoever waits to run looks again."""
        async with self._harness.session.transaction() as tx:
            for wid in await rows.keys(tx, LiveDoc):
                workflow = await rows.workflow(tx, wid)
                for key in workflow.open if workflow is not None else ():
                    call = await rows.call(tx, wid, key)
                    if call is not None and call.queued:
                        await poke(tx, call)

    @property
    def pending(self) -> bool:
        """Whether something waits that could be decided here: nudged and not looked at, or to be tried again."""
        return self._nudged.is_set() or self._retry

    async def decided(self, request: str) -> Request:
        """The decided request; waits for it."""
        found: Request | None = await rows.read(self._harness.session, RequestDoc, request)
        if found is not None and found.decided is not None:
            return found
        waiter: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(request, []).append(waiter)
        try:
            return await waiter
        finally:
            left = self._waiters.get(request, [])
            if waiter in left:
                left.remove(waiter)
            if not left:
                self._waiters.pop(request, None)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(RETRY_SECONDS if self._retry else None):
                    await self._nudged.wait()
            except TimeoutError:
                pass
            self._nudged.clear()
            await self.take()

    async def take(self) -> None:
        """Decide all that can be decided now, in each sender's order."""
        self.passes += 1
        self._retry = False
        progress = True
        while progress:
            progress = False
            for folder in await asyncio.to_thread(spool.senders, self._root):
                try:
                    progress = await self._take_from(folder) or progress
                except OSError as error:
                    self._retry = True
                    self._report("inbox", error)

    async def _take_from(self, folder: str) -> bool:
        newest = await rows.read(self._harness.session, SenderDoc, folder) or 0
        found = await asyncio.to_thread(lambda: list(spool.waiting(self._root, folder)))
        if not found and spool.is_over(folder):
            await self._forget(folder)
            return False
        progress = False
        for recorded in found:
            if recorded.number > newest + 1:
                break  # an earlier one has not come yet
            if recorded.number <= newest:
                recorded.path.unlink(missing_ok=True)  # decided, and cut off before this
                continue
            if not await self._decide(recorded):
                break
            newest, progress = recorded.number, True
        return progress

    async def _forget(self, folder: str) -> None:
        await asyncio.to_thread(spool.remove_folder, self._root, folder)
        async with self._harness.session.transaction() as tx:
            await tx.retire(SenderDoc, key=folder)

    async def _decide(self, recorded: Recorded) -> bool:
        """Decide one request; False if it must wait."""
        sent = recorded.sent
        try:
            if sent is None:
                await self._skip(recorded, recorded.problem)
            elif problem := _unusable(sent.request):
                await self._skip(recorded, problem)
            else:
                await self._commit(recorded, sent, await prepare(self._root, sent))
        except NotYet as error:
            self._retry = True
            if str(recorded.path) not in self._garbage:
                self._garbage.add(str(recorded.path))
                self._report("inbox", error)
            return False
        recorded.path.unlink(missing_ok=True)
        self._garbage.discard(str(recorded.path))
        if sent is not None:
            self._tell(await rows.read(self._harness.session, RequestDoc, sent.request))
        return True

    async def _commit(self, recorded: Recorded, sent: Sent, prepared: Prepared) -> None:
        digest = request_digest(sent.kind, sent.body, sent.targets)
        try:
            async with self._harness.session.transaction() as tx:
                await tx.set(SenderDoc, None, recorded.number, key=recorded.folder)
                if await rows.read(tx, RequestDoc, sent.request) is not None:
                    return  # decided before: a retry, or another content under its name, which its sender is told
                reply = await self._applied(tx, sent, prepared)
                await rows.write(tx, RequestDoc, sent.request, _decided(tx, sent, digest, True, reply))
        except Rejected as refusal:
            if isinstance(refusal, UnknownWorkflow) and await asyncio.to_thread(
                spool.is_recorded, self._root, refusal.name
            ):
                raise NotYet(f"the run {refusal.name} is not decided yet") from refusal
            reply = {"reason": refusal.reason, **refusal.details}
            async with self._harness.session.transaction() as tx:
                await tx.set(SenderDoc, None, recorded.number, key=recorded.folder)
                await rows.write(tx, RequestDoc, sent.request, _decided(tx, sent, digest, False, reply))

    async def _applied(self, tx: TaskTransaction, sent: Sent, prepared: Prepared) -> Reply:
        """What cannot be understood is refused like what cannot be done: it must not hold up the others."""
        try:
            return await self._apply(tx, sent, prepared)
        except (InvalidValue, TypeError, AttributeError, LookupError) as error:
            self._report("inbox", error)
            raise Rejected(f"it cannot be understood: {error}") from error

    async def _apply(self, tx: TaskTransaction, sent: Sent, prepared: Prepared) -> Reply:
        if sent.kind == "run":
            return await decide_run(tx, sent, prepared, self._engine)
        if sent.kind == "revise":
            return await decide_revise(tx, sent, prepared, self._engine)
        decide = self._deciders.get(sent.kind)
        if decide is None:
            raise Rejected(
                f"this orchestrator does not know {sent.kind!r}", hint="restart it to take up the new version"
            )
        return await decide(tx, sent, self._engine)

    async def _skip(self, recorded: Recorded, problem: str) -> None:
        """A file that is no request: reported, and never decided."""
        self._report("inbox", ValueError(f"{recorded.path.name}: {problem}"))
        async with self._harness.session.transaction() as tx:
            await tx.set(SenderDoc, None, recorded.number, key=recorded.folder)

    def _tell(self, request: Request | None) -> None:
        if request is None or request.decided is None:
            return
        for waiter in self._waiters.pop(request.request, []):
            if not waiter.done():
                waiter.set_result(request)


def _unusable(request: str) -> str:
    """What is wrong with a request's id, if something is."""
    try:
        check_request_id(request)
    except InvalidValue as error:
        return str(error)
    return ""


def _decided(tx: TaskTransaction, sent: Sent, digest: str, applied: bool, reply: Reply) -> Request:
    now = tx.now_millis / 1000
    address = str(reply.get("call") or reply.get("wid") or "")
    wid, slash, key = address.partition("/")
    return Request(
        request=sent.request, kind=sent.kind, digest=digest, sender=sent.sender, at=now, decided=now, applied=applied,
        reply=msgspec.to_builtins(reply), wid=wid or None, key=(key.rpartition("@")[0] or key) if slash else None,
        targets=len(sent.targets),
    )  # fmt: skip
