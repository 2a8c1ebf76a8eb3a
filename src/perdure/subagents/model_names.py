"""Names of models as specs write them: `provider/id[:thinking]`, or `provider:id` as the rest of Perdure does."""

from typing import Final, NamedTuple

from perdure import InvalidValue

THINKING: Final = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


class ModelName(NamedTuple):
    """A model, and how much it is to think where that is said."""

    provider: str
    id: str
    thinking: str | None = None

    @property
    def name(self) -> str:
        """As the harness names it."""
        return f"{self.provider}:{self.id}"


def parse_model(text: object) -> ModelName:
    """A colon that no thinking level follows belongs to the id, and an id may hold slashes. Raises `InvalidValue`."""
    if not isinstance(text, str) or not text or any(character.isspace() for character in text):
        raise InvalidValue(f"not a model: {text!r:.200}", hint="provider/id, or provider/id:thinking")
    slash, colon = text.find("/"), text.find(":")
    at = slash if slash >= 0 and (colon < 0 or slash < colon) else colon
    provider, rest = (text[:at], text[at + 1 :]) if at >= 0 else ("", text)
    head, found, level = rest.rpartition(":")
    thinking = level if found and level in THINKING else None
    id = head if thinking is not None else rest
    if not provider or not id:
        raise InvalidValue(f"not a model: {text!r:.200}", hint="provider/id, or provider/id:thinking")
    return ModelName(provider, id, thinking)
