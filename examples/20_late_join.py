"""A client that joins late gets the present, then only what changes; one that was cut off goes on where it was."""

import asyncio

from perdure import Harness
from perdure.base import delta
from perdure.testing.scripted_model import ScriptedModel, say

TEXT = " ".join(f"line {number}," for number in range(60)) + " end"


async def main() -> None:
    model = ScriptedModel([say(TEXT).after(0.0, between=0.02)])
    async with Harness.open("memory:", models=model) as harness:
        root = await harness.root(model="scripted:model")
        async with root.watch() as first:
            submission = await root.submit("Count")
            while first.value["docs"]["live"] is None or first.value["docs"]["live"]["partial"] is None:
                await anext(first)

            async with root.watch() as late:  # in the middle of the answer
                mine = late.value
                print("the late one sees the beginning:", mine["docs"]["live"]["partial"]["blocks"][0]["text"][:14])
                frame = await anext(late)
                mine = delta.apply(mine, frame.ops)
                print("then only what is new:", [op["op"] for op in frame.ops])
                cursor = late.cursor

            answer = await submission.wait()  # the connection is lost; the work goes on
            async with root.watch(after=cursor) as again:
                print("taken up where it was:", again.resumed, again.value == mine)
                while mine["docs"]["live"]["run"]:
                    mine = delta.apply(mine, (await anext(again)).ops)
                print("whole:", mine["entries"][-1]["messages"][0]["content"][0]["text"] == answer.text == TEXT)

            async with root.watch(after="another.session.1.7") as stranger:
                print("a foreign cursor:", stranger.resumed, stranger.value == mine)


asyncio.run(main())
