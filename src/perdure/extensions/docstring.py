"""What a docstring tells a model: a description, and one for each parameter, in Google's style."""

import inspect
import re
from typing import Final

_PARAMETERS: Final = r"(?m)^(?:Args|Arguments|Parameters):[ \t]*$"
_FOR_CALLERS: Final = r"(?m)^(?:Args|Arguments|Parameters|Returns|Yields|Raises):[ \t]*$"
"""Where the part ends that is for models. Other headings are part of the description."""
_ITEM: Final = r"^(?P<name>\*{0,2}\w+)[ \t]*(?:\([^)]*\))?[ \t]*:(?:[ \t]+(?P<text>.*))?$"


class UnreadableDocstring(ValueError):
    """A docstring that says something about parameters which cannot be told to a model."""


def read_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The text before `Args:`, `Returns:` and the like, and what `Args:` says of each parameter, as one line each.

    Raises `UnreadableDocstring` for a line under `Args:` that describes nothing, and for a parameter described twice.
    """
    text = inspect.cleandoc(doc or "")
    end = re.search(_FOR_CALLERS, text)
    description = (text[: end.start()] if end else text).strip()
    described: dict[str, str] = {}
    for section in re.finditer(_PARAMETERS, text):
        for name, said in _items(text[section.end() :].splitlines()):
            if name in described:
                raise UnreadableDocstring(f"its docstring describes {name} twice")
            described[name] = said
    return description, described


def _items(lines: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    indent: int | None = None
    for line in lines:
        said = line.strip()
        if not said:
            continue
        deep = len(line) - len(line.lstrip())
        if not deep:
            break
        if indent is None or deep <= indent:
            item = re.match(_ITEM, said)
            if item is None or (indent is not None and deep < indent):
                raise UnreadableDocstring(f"its docstring has a line under Args that describes no parameter: {said!r}")
            indent = deep
            found.append((item["name"].lstrip("*"), (item["text"] or "").strip()))
        else:
            name, before = found[-1]
            found[-1] = (name, f"{before} {said}".strip())
    return found
