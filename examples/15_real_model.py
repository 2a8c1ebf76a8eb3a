"""A provider's wire, end to end: a tool, an image, caching and cost. The server is local, so it runs offline.

With a key in OPENAI_API_KEY and without `base_url`, the same program asks the real one: nothing else changes.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from perdure import Extension, Harness, ProviderModels, Registry, Text, ToolContext
from perdure.testing.fake_openai import FakeOpenAI

desk = Extension("desk")


@desk.tool(replay="safe")
async def weather(ctx: ToolContext, city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


TURNS: list[dict[str, Any]] = [
    {"thinking": "I have a tool for that.", "calls": [{"name": "weather", "arguments": {"city": "Graz"}}]},
    {"text": "Sunny.", "usage": {"prompt_tokens": 900, "completion_tokens": 12}},
    {
        "text": "A red square.",
        "usage": {"prompt_tokens": 1200, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 900}},
    },
]
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(64)


async def main() -> None:
    path = Path(tempfile.mkdtemp()) / "agent.db"
    with FakeOpenAI(TURNS) as server:
        async with ProviderModels(base_url=server.base_url) as models:
            async with Harness.open(path, registry=Registry([desk]), models=models) as harness:
                root = await harness.root(model="openai:gpt-5", instructions="Be brief.")
                print((await (await root.submit("How is it in Graz?")).wait()).text)
            async with Harness.open(path, registry=Registry([desk]), models=models) as harness:  # another day
                root = await harness.root()
                picture = await harness.attach(PICTURE, name="square.png")
                answer = await (await root.submit([Text("And what is this?"), picture])).wait()
                print(answer.text)
                print(answer.usage and f"{answer.usage.cache_read} of {answer.usage.input} tokens came from the cache")
                print(f"cost known: {(await harness.usage())['unpriced'] == 0}")
    first, second, third = (body["messages"] for body in server.requests)
    print([message["role"] for message in third])
    print("prefix unchanged:", second[: len(first)] == first and third[: len(second)] == second)
    print("one session:", len({headers["x-session-id"] for headers in server.headers}) == 1)


asyncio.run(main())
