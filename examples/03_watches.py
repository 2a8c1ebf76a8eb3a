"""Watches: the value now, then the exact operations of every commit. Slow watchers converge; nobody waits for them."""

import asyncio
from typing import TypedDict

from perdure import Document, Harness


class Log(TypedDict):
    text: str
    lines: int


AppLog: Document[Log] = Document("app.log", Log, scope="session", initial=lambda: {"text": "", "lines": 0})


async def main() -> None:
    async with Harness.open("memory:") as harness:
        session = harness.session

        async def write(line: str) -> None:
            async with session.transaction() as tx:
                log = await tx.doc(AppLog)
                log["text"] += line + "\n"
                log["lines"] += 1

        await write("before anybody watched")
        async with harness.watch_document(AppLog) as watch:
            print("attached at:", watch.value)
            await write("one")
            await write("two")
            for _ in range(2):
                frame = await anext(watch)
                print("frame:", frame.ops)
            for number in range(150):  # more than a slow consumer's frames are kept
                await write(f"line {number}")
            frame = await anext(watch)
            print("lagged: one frame with", [(op["op"], op["path"]) for op in frame.ops], "lines", frame.value["lines"])
            while frame.value["lines"] < 153:
                frame = await anext(watch)
            print("caught up at", watch.value["lines"])
        print("ended:", watch.ended)


asyncio.run(main())
