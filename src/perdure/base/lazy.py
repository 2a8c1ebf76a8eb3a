"""What is loaded when it is first used, so that starting stays cheap."""

from importlib import import_module
from typing import Any


def load(where: str) -> Any:
    """The object at `module:name`; its module is imported now if it wasn't. Raises what the import raises."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
