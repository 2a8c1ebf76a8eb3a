"""What watching costs: bytes on the wire, many watchers beside few, how long one conversation's work delays another.

    .venv/bin/python bench/views.py

Prints one row a measurement. Every chunk is a word of six characters, as models stream them.
"""

import asyncio
import contextlib
import time
from typing import Any

import msgspec

from perdure import Extension, Harness, Registry, Settings, ToolContext
from perdure.testing.clock import FakeClock, settle
from perdure.testing.scripted_model import ScriptedModel, Turn, call, say

CHUNKS = 2000
CHUNK = 6
PACES = (50, 80, 200, 1000)
"""Chunks a second: what models stream, from slow to very fast."""
WORK_SECONDS = 1.0
GAP_SECONDS = 0.01
"""Between two chunks of the answer whose delay is measured."""


def answer(chunks: int = CHUNKS, between: float = 0.0) -> Turn:
    """An answer of so many chunks."""
    return say("".join(f"w{number:04d} " for number in range(chunks))).after(0.0, between=between)


async def bytes_on_the_wire(chunks_per_second: float) -> tuple[int, int, int]:
    """Bytes of the text, of all frames to one watcher, of all events to one listener, snapshots left out."""
    clock = FakeClock()
    models = ScriptedModel([answer(between=1 / chunks_per_second)], chunk=CHUNK, clock=clock)
    async with Harness.open("memory:", models=models, clock=clock) as harness:
        root = await harness.root(model="scripted:model")
        async with root.watch() as watch, root.events() as events:
            await anext(events)
            reading = [asyncio.create_task(_frames(watch)), asyncio.create_task(_events(events))]
            submission = await root.submit("go")
            await settle()
            for _ in range(int(CHUNKS / chunks_per_second * 10) + 20):
                await clock.advance(0.1)
            await submission.wait()
        return CHUNKS * CHUNK, await reading[0], await reading[1]


async def _frames(watch: Any) -> int:
    """Read as a server does: each frame as JSON."""
    total = 0
    async for frame in watch:
        total += len(frame.encode())
    return total


async def _events(events: Any) -> int:
    total = 0
    async for event in events:
        total += len(msgspec.json.encode(event))
    return total


async def watched(watchers: int, progress_interval: float, between: float = 0.0) -> tuple[float, int]:
    """Processor seconds of a streamed answer that so many watch, read and encode; and how many frames each got."""
    models = ScriptedModel([say("ready"), answer(between=between)], chunk=CHUNK)
    settings = Settings(progress_interval=progress_interval)
    async with Harness.open("memory:", models=models, settings=settings) as harness:
        root = await harness.root(model="scripted:model")
        await (await root.submit("warm up")).wait()
        async with contextlib.AsyncExitStack() as stack:
            watches = [await stack.enter_async_context(root.watch()) for _ in range(watchers)]
            counts = [0] * watchers

            async def read(at: int) -> None:
                async for frame in watches[at]:
                    frame.encode()
                    counts[at] += 1

            readers = [asyncio.create_task(read(at)) for at in range(watchers)]
            await asyncio.sleep(0)
            began = time.process_time()
            await (await root.submit("go")).wait()
            took = time.process_time() - began
            await settle()
        await asyncio.gather(*readers)
        return took, min(counts, default=0)


def work(blocking: bool) -> Extension:
    """A tool that computes for a while: in a thread, or asynchronously in short pieces."""
    extension = Extension("work")
    if blocking:

        @extension.tool(name="compute", blocking=True)
        def compute(ctx: ToolContext) -> str:
            """Compute."""
            end = time.monotonic() + WORK_SECONDS
            while time.monotonic() < end:
                sum(range(1000))
            return "computed"

    else:

        @extension.tool(name="compute")
        async def compute_in_pieces(ctx: ToolContext) -> str:
            """Compute."""
            end = time.monotonic() + WORK_SECONDS
            while time.monotonic() < end:
                sum(range(1000))
                await asyncio.sleep(0)
            return "computed"

    return extension


async def longest_delay(blocking: bool) -> tuple[float, float]:
    """Seconds by which frames of a streaming conversation came late at most, alone and while another one computes."""

    def script(request: Any) -> Any:
        first = str(request.messages[0].content)
        if first == "compute":
            return call("compute") if len(request.messages) == 1 else say("done")
        return answer(int(1.5 * WORK_SECONDS / GAP_SECONDS), between=GAP_SECONDS)

    settings = Settings(progress_interval=GAP_SECONDS)
    models = ScriptedModel(script, chunk=CHUNK)
    async with Harness.open(
        "memory:", registry=Registry([work(blocking)]), models=models, settings=settings
    ) as harness:
        root = await harness.root(model="scripted:model")
        await (await root.submit("hello")).wait()
        first = (await root.entries())[0]
        delays = []
        for busy in (False, True):
            streaming, computing = await root.fork(first.id), await root.fork(first.id)
            async with streaming.watch() as watch:
                reader = asyncio.create_task(_gaps(watch))
                other = await computing.submit("compute") if busy else None
                await (await streaming.submit("stream")).wait()
                if other is not None:
                    await other.wait()
            delays.append(max(await reader) - 2 * GAP_SECONDS)
        return delays[0], delays[1]


async def _gaps(watch: Any) -> list[float]:
    """Seconds between two frames of an answer that streams."""
    found: list[float] = []
    last: float | None = None
    async for frame in watch:
        streams = any(op["op"] == "append" for op in frame.ops)
        now = time.perf_counter()
        if streams and last is not None:
            found.append(now - last)
        last = now if streams else None
    return found


async def main() -> None:
    for pace in PACES:
        text, frames, events = await bytes_on_the_wire(pace)
        print(f"{pace:>5} chunks/s: frames {frames / text:.2f}x, events {events / text:.2f}x the text")
    for interval, between in ((0.1, 0.0005), (0.0, 0.0)):
        cost = {n: min([(await watched(n, interval, between))[0] for _ in range(3)]) for n in (1, 10, 100)}
        frames = (await watched(1, interval, between))[1]
        row = ", ".join(f"{number}: {seconds * 1e6 / CHUNKS:.1f} us" for number, seconds in cost.items())
        print(f"a commit every {interval} s, {frames} frames: a chunk costs with watchers {row}", end="; ")
        print(f"100 cost {cost[100] / cost[10]:.2f}x of 10")
    for blocking in (True, False):
        alone, busy = await longest_delay(blocking)
        kind = "blocking" if blocking else "async"
        print(f"{kind} tool computing for {WORK_SECONDS} s: late by {busy * 1000:.1f} ms (alone {alone * 1000:.1f} ms)")


if __name__ == "__main__":
    asyncio.run(main())
