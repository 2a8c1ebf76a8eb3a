"""The variables that hold model providers' keys: the harness needs them, the commands of its tools do not."""

from collections.abc import Mapping
from typing import Final

PROVIDER_KEYS: Final = frozenset(
    (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AZURE_OPENAI_API_KEY",
        "CEREBRAS_API_KEY",
        "CO_API_KEY",
        "COHERE_API_KEY",
        "DEEPSEEK_API_KEY",
        "FIREWORKS_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GROK_API_KEY",
        "GROQ_API_KEY",
        "HF_TOKEN",
        "HUGGINGFACE_API_KEY",
        "MISTRAL_API_KEY",
        "MOONSHOTAI_API_KEY",
        "NEBIUS_API_KEY",
        "OLLAMA_API_KEY",
        "OPENAI_ADMIN_KEY",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
        "PERPLEXITY_API_KEY",
        "TOGETHER_API_KEY",
        "VERCEL_AI_GATEWAY_API_KEY",
        "XAI_API_KEY",
    )
)
"""As the providers name them. Keys of clouds (`AWS_ACCESS_KEY_ID` …) are not among them: commands deploy with those."""


def without_provider_keys(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment for commands."""
    return {name: value for name, value in variables.items() if name not in PROVIDER_KEYS}
