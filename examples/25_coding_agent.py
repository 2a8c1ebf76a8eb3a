"""A small coding agent: it follows the repository's AGENTS.md, times its commands, and has a cheaper one beside it.

`python 25_coding_agent.py "Make the tests pass" openai:gpt-5` works with a real model in the current folder and comes
back to the same conversation every time. Without arguments a scripted model works on a scratch repository, offline.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from perdure import Conversation, Extension, Harness, Registry, SectionContext, ToolContext, Unanswered
from perdure.env.errors import FileNotThere
from perdure.events import SubmissionChanged, ToolEnd, ToolStart
from perdure.testing.scripted_model import ScriptedModel, call, say
from perdure.tools import coding_tools, search_tools

project = Extension("project")
timing = Extension("timing")
took: list[float] = []


@project.section("agents_md")
async def agents_md(ctx: SectionContext) -> str | None:
    """Read where the agent works, before each request: a changed file is in the next one."""
    env = await ctx.env()
    try:
        return (await env.read("AGENTS.md", limit=32_000)).decode("utf-8", "replace")
    except FileNotThere:
        return None


@timing.wrap_tool("bash")
async def timed(ctx: ToolContext, args: dict[str, Any], call_next: Any) -> Any:
    """Around whichever bash the conversation ends up with."""
    started = time.perf_counter()
    try:
        return await call_next(args)
    finally:
        took.append(time.perf_counter() - started)


def build(store: str | Path, models: Any = None) -> Any:
    registry = Registry([coding_tools, search_tools, project, timing])
    return Harness.open(store, registry=registry, models=models)


async def ask(conversation: Conversation, text: str) -> str:
    """One input; its tool calls are shown as they come and go."""
    async with conversation.events() as events:
        submission = await conversation.submit(text)
        async for event in events:
            match event:
                case ToolStart(name=name, arguments=arguments):
                    print(f"  > {name} {arguments.get('command') or arguments.get('path') or arguments.get('pattern')}")
                case ToolEnd(is_error=True):
                    print("    failed")
                case SubmissionChanged(id=submission.id, status="done" | "unanswered"):
                    break
    return (await submission.wait()).text


async def real(text: str, model: str) -> None:
    """With a provider's key in the environment. What is interrupted goes on with the next start."""
    async with build(Path.home() / ".small-agent.db") as harness:
        root = await harness.root(model=model)
        await root.configure(model=model, cwd=str(Path.cwd()))
        try:
            print(await ask(root, text))
        except Unanswered as error:
            print(error, file=sys.stderr)


BROKEN = "def add(a, b):\n    return a - b\n\n\nassert add(2, 2) == 4, 'wrong'\n"
TURNS: list[Any] = [
    [call("read", {"path": "add.py"}), call("bash", {"command": "python3 add.py"})],
    call("edit", {"path": "add.py", "old_text": "a - b", "new_text": "a + b"}),
    call(
        "bash", {"command": "python3 add.py && git commit -qam 'add: add, not subtract' && git log --oneline | wc -l"}
    ),
    say("Fixed and committed."),
    call("grep", {"pattern": "return"}),
    say("One line, and the right one."),
]


def scratch_repository(path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(path), *words], check=True)

    path.mkdir()
    git("init", "-q")
    git("config", "user.name", "Agent")
    git("config", "user.email", "agent@example.com")
    (path / "add.py").write_text(BROKEN)
    (path / "AGENTS.md").write_text("Run the file before you commit.\n")
    git("add", ".")
    git("commit", "-qm", "begin")


def checkout(repository: Path, path: Path) -> None:
    """Another working tree of the same repository."""
    subprocess.run(["git", "-C", str(repository), "worktree", "add", "-q", str(path)], check=True)
    (path / "AGENTS.md").write_text("Be brief.\n")


async def demo(folder: Path) -> None:
    repository = folder / "repo"
    scratch_repository(repository)
    model = ScriptedModel(TURNS)
    async with build(folder / "agent.db", model) as harness:
        root = await harness.root(model="scripted:large", instructions="You are a coding agent.", cwd=str(repository))
        print("agent:", await ask(root, "Make add.py pass"))

        # a reviewer beside it: a cheaper model, tools that only look, a checkout of its own
        checkout(repository, folder / "review")
        newest = (await root.entries(newest_first=True, limit=1))[0]
        reviewer = await root.fork(newest.id, key="review")
        await reviewer.configure(model="scripted:small", tools=["read", "grep", "find"], cwd=str(folder / "review"))
        print("reviewer:", await ask(reviewer, "Review what was changed"))

    print("the agent was told: ", repr(model.requests[0].system))
    print("the reviewer was told:", repr(model.requests[-1].system), [tool.name for tool in model.requests[-1].tools])
    print("commands timed:", len(took), all(seconds > 0 for seconds in took))


def main() -> None:
    if len(sys.argv) == 3:
        asyncio.run(real(sys.argv[1], sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(demo(Path(folder)))


main()
