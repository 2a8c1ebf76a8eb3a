"""The providers that names may begin with, and what using each of them takes. Imports no provider's library."""

from itertools import pairwise
from typing import Final

import msgspec

from perdure.base.lazy import load
from perdure.models.errors import UnknownModel


class Provider(msgspec.Struct, frozen=True, gc=False):
    """One provider: where its adapter stands in the provider library, what it needs, and what it can take."""

    name: str
    model_class: str
    """`module:class` in the provider library."""
    provider_class: str
    packages: tuple[str, ...]
    """Modules that must be there for the class to be imported."""
    extra: str
    """The extra of our own package that brings them."""
    keys: tuple[str, ...] = ()
    """Environment variables that may hold its key, first found wins; empty: none is needed, or it finds its own."""
    base_url_variable: str | None = None
    default_base_url: str | None = None
    """Used when nothing says otherwise; None leaves it to the provider library."""
    key_optional: bool = False
    """A server at an address of the user's own may need no key."""
    system_updates: tuple[str, ...] = ()
    """Beginnings of the names of models that take system messages in the middle of a conversation, at the provider's
    own address; an empty text stands for every model."""
    session_header: str | None = None
    """The header by which requests of one conversation find the same machine, and so a warm prompt cache."""
    thinks_on: bool = False
    """Thinks in the middle of a tool round only if its turn began with thinking."""
    images_back: bool = False
    """Takes images that a model made back as the model's own words."""
    more_images: frozenset[str] = frozenset()
    """Image types it takes beside the common ones."""
    prices: str | None = None
    """What the price list calls it, where that differs."""


_OPENAI = ("pydantic_ai", "openai")

PROVIDERS: Final[dict[str, Provider]] = {
    provider.name: provider
    for provider in (
        Provider(
            "openai",
            "pydantic_ai.models.openai:OpenAIChatModel",
            "pydantic_ai.providers.openai:OpenAIProvider",
            packages=_OPENAI,
            extra="openai",
            keys=("OPENAI_API_KEY",),
            base_url_variable="OPENAI_BASE_URL",
            key_optional=True,
            system_updates=("",),
            session_header="x-session-id",
        ),
        Provider(
            "anthropic",
            "pydantic_ai.models.anthropic:AnthropicModel",
            "pydantic_ai.providers.anthropic:AnthropicProvider",
            packages=("pydantic_ai", "anthropic"),
            extra="anthropic",
            keys=("ANTHROPIC_API_KEY",),
            base_url_variable="ANTHROPIC_BASE_URL",
            thinks_on=True,
            system_updates=("claude-fable-5", "claude-mythos-5", "claude-opus-4-8", "claude-opus-5"),
        ),
        Provider(
            "google",
            "pydantic_ai.models.google:GoogleModel",
            "pydantic_ai.providers.google:GoogleProvider",
            packages=("pydantic_ai", "google.genai"),
            extra="google",
            keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            base_url_variable="GOOGLE_GEMINI_BASE_URL",
            images_back=True,
            more_images=frozenset({"image/heic", "image/heif"}),
        ),
        Provider(
            "groq",
            "pydantic_ai.models.groq:GroqModel",
            "pydantic_ai.providers.groq:GroqProvider",
            packages=("pydantic_ai", "groq"),
            extra="groq",
            keys=("GROQ_API_KEY",),
            base_url_variable="GROQ_BASE_URL",
        ),
        Provider(
            "mistral",
            "pydantic_ai.models.mistral:MistralModel",
            "pydantic_ai.providers.mistral:MistralProvider",
            packages=("pydantic_ai", "mistralai"),
            extra="mistral",
            keys=("MISTRAL_API_KEY",),
        ),
        Provider(
            "openrouter",
            "pydantic_ai.models.openrouter:OpenRouterModel",
            "pydantic_ai.providers.openrouter:OpenRouterProvider",
            packages=_OPENAI,
            extra="openai",
            keys=("OPENROUTER_API_KEY",),
            session_header="x-session-id",
        ),
        Provider(
            "ollama",
            "pydantic_ai.models.ollama:OllamaModel",
            "pydantic_ai.providers.ollama:OllamaProvider",
            packages=_OPENAI,
            extra="openai",
            base_url_variable="OLLAMA_BASE_URL",
            default_base_url="http://localhost:11434/v1",
        ),
        Provider(
            "bedrock",
            "pydantic_ai.models.bedrock:BedrockConverseModel",
            "pydantic_ai.providers.bedrock:BedrockProvider",
            packages=("pydantic_ai", "boto3"),
            extra="bedrock",
            thinks_on=True,
            prices="aws",
        ),
    )
}

LOCAL: Final = "local"
"""Models that run in this process, without a provider or a key."""


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """Which model to ask, where, with which key; None leaves it to the provider's library."""

    provider: Provider
    model: str
    base_url: str | None = None
    key: str | None = None
    images: bool = True
    """Whether the model may take images; False overrules what its name says."""


def split_name(name: str) -> tuple[str, str]:
    """The provider and the model of a `provider:model` name; `UnknownModel` names the nearest provider there is."""
    provider, colon, model = name.partition(":")
    known = (*PROVIDERS, LOCAL)
    if not colon or not model.strip():
        raise UnknownModel(
            f"{name!r} is no model's name", hint="a name is provider:model, such as anthropic:claude-opus-5"
        )
    if provider not in known:
        near = _nearest(provider.lower(), known)
        nearest = f"did you mean {near}:{model}? " if near else ""
        raise UnknownModel(f"no provider {provider!r}", hint=f"{nearest}known: {', '.join(known)}")
    return provider, model


def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that shares most pairs of letters, if that is half of them; difflib is slow to load for this."""

    def likeness(other: str) -> float:
        left, right = ({a + b for a, b in pairwise(f" {word} ")} for word in (name, other))
        return 2 * len(left & right) / (len(left) + len(right))

    best = max(known, key=likeness)
    return best if likeness(best) >= 0.5 else None


def check_installed(provider: Provider) -> None:
    """Raise `UnknownModel` with the command that installs what the provider needs. Imports nothing of it."""
    if not all(is_installed(package) for package in provider.packages):
        raise UnknownModel(
            f"{provider.name} needs a package that is not installed", hint=f'pip install "perdure[{provider.extra}]"'
        )


def is_installed(module: str) -> bool:
    """Whether a module could be imported, without importing it (only the packages that hold it)."""
    try:
        return load("importlib.util:find_spec")(module) is not None
    except ModuleNotFoundError:
        return False
