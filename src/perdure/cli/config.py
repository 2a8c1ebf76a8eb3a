"""The configuration: a file of the user, one of the project, flags above both."""

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec
import platformdirs

from perdure.base.errors import Error, InvalidValue

PROJECT_FILE: Final = "perdure.toml"


class ConfigError(Error):
    """A configuration file that cannot be used."""

    code = "config_error"


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a configuration file may say."""

    model: str | None = None
    """provider:model"""
    thinking: str | None = None
    instructions: str | None = None
    durability: str = "power"
    """"power" or "process"."""
    sessions: str | None = None
    """Folder of the sessions."""
    app: str | None = None
    """module:registry with the extensions of your own."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server for `openai:` models."""
    agents: dict[str, Any] = {}
    """Where agent files are and what differs from them: read by `subagents.projects`."""


def load_config(start: Path | None = None) -> Config:
    """The user's file, then the project's above it. Unknown keys are errors that name the nearest valid one."""
    values: dict[str, Any] = {}
    for path in (user_file(), project_file(start or Path.cwd())):
        if path is not None and path.is_file():
            values.update(_read(path))
    return msgspec.convert(values, Config)


def user_file() -> Path:
    """The user's configuration file, at the platform's place."""
    return Path(platformdirs.user_config_dir("perdure")) / "config.toml"


def project_file(start: Path) -> Path | None:
    """The nearest `perdure.toml`, from a folder upwards."""
    for folder in (start, *start.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    known = [field.name for field in msgspec.structs.fields(Config)]
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"keys: {', '.join(known)}"
            raise ConfigError(f"{path}: unknown key {key!r}", hint=hint)
    try:
        msgspec.convert(found, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
    return found


def pick_model(flag: str | None, config: Config) -> str:
    """The model to use: the flag, the configuration, or the first provider whose key is set."""
    chosen = flag or config.model
    if chosen is not None:
        return chosen
    for variable, model in DEFAULT_MODELS.items():
        if os.environ.get(variable):
            return model
    raise InvalidValue(
        "no model is configured and no provider's key is set",
        hint="export OPENAI_API_KEY=… (or another provider's key), or pass --model provider:model; "
        "`perdure tour` runs without any",
    )


DEFAULT_MODELS: Final = {
    "OPENAI_API_KEY": "openai:gpt-5",
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-5",
    "GOOGLE_API_KEY": "google:gemini-2.5-pro",
    "GROQ_API_KEY": "groq:llama-3.3-70b-versatile",
    "MISTRAL_API_KEY": "mistral:mistral-large-latest",
    "OPENROUTER_API_KEY": "openrouter:openai/gpt-5",
}
"""Used only when nothing else names a model."""
