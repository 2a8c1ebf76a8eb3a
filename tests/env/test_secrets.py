"""Commands of tools do not see the keys that the harness uses, unless they are let through."""

from pathlib import Path

import pytest

from perdure.env.local import LocalEnv
from perdure.env.secrets import PROVIDER_KEYS
from perdure.models.catalog import PROVIDERS
from perdure.testing.env_suite import run


async def test_a_command_sees_no_provider_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROVIDER_KEYS:
        monkeypatch.setenv(name, "sk-secret")
    monkeypatch.setenv("MY_TOKEN", "mine")
    out, _, _ = await run(LocalEnv(tmp_path), "env; tr '\\0' '\\n' < /proc/$PPID/environ")
    assert b"sk-secret" not in out
    assert b"MY_TOKEN=mine" in out


async def test_a_key_is_passed_on_when_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    out, _, _ = await run(LocalEnv(tmp_path, provider_keys=True), "echo $OPENAI_API_KEY")
    assert out == b"sk-secret\n"
    out, _, _ = await run(LocalEnv(tmp_path), "echo $OPENAI_API_KEY", variables={"OPENAI_API_KEY": "given"})
    assert out == b"given\n"


def test_every_provider_that_we_know_is_covered() -> None:
    assert {key for provider in PROVIDERS.values() for key in provider.keys} <= PROVIDER_KEYS
