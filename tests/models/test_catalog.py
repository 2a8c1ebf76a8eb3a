"""Names, and what an unknown or uninstalled one says."""

import os
import subprocess
import sys

import pytest

from perdure.models.adapter import Connections
from perdure.models.catalog import PROVIDERS, Endpoint, Provider, check_installed, split_name
from perdure.models.convert import WireIds
from perdure.models.errors import UnknownModel
from perdure.models.provider import ProviderModels


def test_a_name_splits_at_its_first_colon() -> None:
    assert split_name("ollama:llama3.2:1b") == ("ollama", "llama3.2:1b")


@pytest.mark.parametrize("name", ["gpt-5", "", ":", "openai:", "openai: "])
def test_what_is_no_name_says_how_names_look(name: str) -> None:
    with pytest.raises(UnknownModel, match="provider:model"):
        split_name(name)


def test_a_misspelt_provider_names_the_nearest_and_all_known() -> None:
    with pytest.raises(UnknownModel, match=r"did you mean anthropic:claude-opus-5\? known: openai, anthropic"):
        split_name("antropic:claude-opus-5")
    with pytest.raises(UnknownModel, match="known: openai") as caught:
        split_name("zzz:x")
    assert "did you mean" not in str(caught.value)


def test_a_missing_package_says_what_to_install() -> None:
    missing = Provider("groq", "m:M", "p:P", packages=("pydantic_ai", "no_such_package.inner"), extra="groq")
    with pytest.raises(UnknownModel) as caught:
        check_installed(missing)
    assert caught.value.hint == 'pip install "perdure[groq]"'


@pytest.mark.parametrize("name", ["openai", "anthropic", "google", "openrouter", "ollama"])
async def test_a_provider_opens_and_closes(name: str) -> None:
    connections = Connections()
    opened = await connections.open(Endpoint(PROVIDERS[name], "openai/some-model", "http://127.0.0.1:9/v1", "key"))
    assert opened.model_name == "openai/some-model"
    await connections.close()


@pytest.mark.slow
def test_naming_a_model_imports_no_provider_library() -> None:
    code = (
        "import sys, perdure.models.provider as p, perdure.testing.scripted_model\n"
        "m = p.ProviderModels(environ={'OPENAI_API_KEY': 'x'}).model('openai:gpt-5'); m.name; m.system_updates\n"
        "print([n for n in ('pydantic_ai', 'openai', 'anthropic', 'genai_prices', 'pydantic') if n in sys.modules])"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-5-5"])
async def test_the_catalog_says_of_system_updates_what_the_provider_library_knows(model: str) -> None:
    connections = Connections()
    opened = await connections.open(Endpoint(PROVIDERS["anthropic"], model, None, "key"))
    known = bool(opened.profile.get("supports_inline_system_prompts", False))
    assert any(map(model.startswith, PROVIDERS["anthropic"].system_updates)) == known
    await connections.close()


def test_system_updates_are_taken_at_the_providers_own_address_and_elsewhere_when_said() -> None:
    own: dict[str, str] = {}
    elsewhere = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    assert ProviderModels(environ=own).model("openai:gpt-5").system_updates
    assert not ProviderModels(environ=own).model("anthropic:claude-sonnet-4-6").system_updates
    assert not ProviderModels(environ=elsewhere).model("openai:m").system_updates
    assert ProviderModels(environ=elsewhere, system_updates=["openai"]).model("openai:m").system_updates


def test_ids_of_calls_have_the_one_length_that_a_provider_wants() -> None:
    ids = WireIds(9)
    made = [ids.call("call_0"), ids.call("call_0"), ids.call("call|1")]
    assert len(set(made)) == 3
    assert all(len(one) == 9 and one.isalnum() for one in made)
    assert [ids.result("call_0"), ids.result("call_0"), ids.result("call|1")] == made
    assert WireIds(9).call("call_0") == made[0]  # the same in every request, so that the front stays as it was
