"""An agent end to end: a provider's HTTP protocol on loopback, the shipped tools, a git repository, a file as store."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure import Harness, Registry, RetrySettings, Settings
from perdure.models.provider import ProviderModels
from perdure.testing.fake_openai import FakeOpenAI
from perdure.tools import coding_tools
from tests.agent.kit import ask, attempts, results

SETTINGS = Settings(retry=RetrySettings(first_delay=0.01, longest_retry_after=60))


def scratch_repository(path: Path) -> Path:
    path.mkdir()
    (path / "add.py").write_text("def add(a, b):\n    return a - b\n\nassert add(2, 2) == 4\n")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=path, check=True)
    return path


def calls(*made: tuple[str, object]) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments} for name, arguments in made]}


@pytest.mark.slow
async def test_an_agent_mends_a_repository_over_http_through_cuts_limits_and_bad_arguments(tmp_path: Path) -> None:
    repository = scratch_repository(tmp_path / "repository")
    script: list[dict[str, Any]] = [
        {"text": "Let me look at it, at length", "cut": 2},
        {"status": 429, "headers": {"retry-after": "0"}, "error": {"message": "slow down", "type": "requests"}},
        calls(("read", {"path": "add.py"}), ("bash", {"command": "python3 add.py 2>&1 | tail -1"})),
        calls(("edit", '{"path": "add.py", "old_text":')),
        calls(("edit", {"path": "add.py", "old_text": "a - b", "new_text": "a + b"})),
        calls(("bash", {"command": "sleep 300 & python3 add.py && echo passed; git diff --stat | cat"})),
        {"text": "It subtracted 😀."},
    ]
    with FakeOpenAI(script) as server:
        async with ProviderModels(base_url=server.base_url, environ={"OPENAI_API_KEY": "k"}) as models:
            opening = Harness.open(
                tmp_path / "a.db", registry=Registry([coding_tools]), models=models, settings=SETTINGS
            )
            async with opening as harness:
                root = await harness.root(model="openai:model", cwd=str(repository))
                assert await ask(root, "Make add.py pass", request_id="job") == "It subtracted 😀."
                read, ran, malformed, edited, passed = await results(root)
                assert "a - b" in read
                assert "AssertionError" in ran
                assert malformed.startswith("invalid_arguments")
                assert "passed" in passed
                assert "1 insertion(+), 1 deletion(-)" in passed
                assert edited
                assert (await attempts(root))[:2] == ["error", "error"]
                usage = await harness.usage()
                assert usage["input"] == server.usage["prompt_tokens"]
                assert usage["output"] == server.usage["completion_tokens"]
                assert len(server.requests) == 7
        asked = len(server.requests)
        async with ProviderModels(base_url=server.base_url, environ={"OPENAI_API_KEY": "k"}) as models:
            async with Harness.open(tmp_path / "a.db", registry=Registry([coding_tools]), models=models) as harness:
                root = await harness.root()
                assert await ask(root, "Make add.py pass", request_id="job") == "It subtracted 😀."
                assert len(server.requests) == asked
    assert "a + b" in (repository / "add.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["quota", "auth", "rate_limit_days", "bad_request", "policy", "not_found"])
async def test_what_a_provider_will_not_forgive_ends_the_run_after_one_request(fault: str) -> None:
    with FakeOpenAI([{"fault": fault}, {"text": "fine"}]) as server:
        async with ProviderModels(base_url=server.base_url, environ={"OPENAI_API_KEY": "k"}) as models:
            async with Harness.open("memory:", models=models, settings=SETTINGS) as harness:
                root = await harness.root(model="openai:model")
                settled = await (await root.submit("a")).settled()
                assert settled.status == "unanswered"
                assert len(server.requests) == 1
                assert await ask(root, "b") == "fine"
