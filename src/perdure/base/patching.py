"""patchdiff, loaded with the first draft or difference of lists: loading it takes a fifth of the time to start.

It looks up its own version in the metadata of installed packages, which loads half of the mail package.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

PROXIES_MODULE: Final = "patchdiff.produce"
"""Where the proxies' own code runs."""


class Proxies(NamedTuple):
    """The classes that record what is done to a dict and to a list."""

    dict: Any
    list: Any


_loaded: list[Proxies] = []


def proxies() -> Proxies:
    """patchdiff's proxies. They take any recorder that has `epoch`, `record_add`, `record_remove`, `record_replace`."""
    if not _loaded:
        from patchdiff.produce import DictProxy, ListProxy

        _loaded.append(Proxies(DictProxy, ListProxy))
    return _loaded[0]


def is_proxy(value: Any) -> bool:
    """Whether it is one; before the first draft nothing is, and nothing is loaded to find out."""
    return bool(_loaded) and type(value) in _loaded[0]


def edit_script(old: list[bytes], new: list[bytes]) -> list[dict[str, Any]]:
    """The shortest way from one list to the other as patchdiff's operations, of which only the last step counts."""
    script: list[dict[str, Any]] = _diff()(old, new)[0]
    return script


@lru_cache(1)
def _diff() -> Any:
    from patchdiff.diff import diff

    return diff
