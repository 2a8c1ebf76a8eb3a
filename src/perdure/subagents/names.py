"""Names: workflows, calls, generations, executions, requests."""

import re
import secrets
import time
from functools import cache
from typing import Final, NamedTuple

from perdure import InvalidValue

DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: in code point order, and without letters that are read as others."""
REQUEST_LENGTH: Final = 124
SESSION_LENGTH: Final = 200


class Address(NamedTuple):
    """`<wid>/<key>`, or a workflow alone; with a revision or a generation where somebody means that one."""

    workflow: str
    key: str | None = None
    revision: int | None = None
    generation: int | None = None


def new_workflow_id(now: float | None = None) -> str:
    """Sixteen characters that sort by time, to the millisecond, and do not repeat."""
    millis = int((time.time() if now is None else now) * 1000)
    return _digits(millis, 10) + _digits(secrets.randbits(30), 6)


def _digits(number: int, length: int) -> str:
    return "".join(DIGITS[(number >> (5 * place)) & 31] for place in reversed(range(length)))


def new_request_id() -> str:
    """For a request whose sender named none."""
    return f"r-{secrets.token_hex(12)}"


def check_request_id(request: object) -> str:
    """1 to 124 characters of letters, digits and `._:-`, the first one a letter or digit. Raises `InvalidValue`."""
    if not isinstance(request, str) or not _request().fullmatch(request):
        raise InvalidValue(
            f"not a request id: {request!r:.200}",
            hint=f"1 to {REQUEST_LENGTH} characters: a letter or digit, then letters, digits and . _ : -",
        )
    return request


def is_session(name: object) -> bool:
    """Whether that can be the name of a session: printable characters, 200 at most."""
    return isinstance(name, str) and 0 < len(name) <= SESSION_LENGTH and name.isprintable() and bool(name.strip())


def check_session(name: object) -> str:
    """A session's name. Raises `InvalidValue`."""
    if not isinstance(name, str) or not is_session(name):
        raise InvalidValue(
            f"invalid-session: {name!r:.200}", hint=f"the name of a session: at most {SESSION_LENGTH} characters"
        )
    return name


@cache
def _request() -> re.Pattern[str]:
    return re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{REQUEST_LENGTH - 1}}}")


@cache
def _address() -> re.Pattern[str]:
    return re.compile(r"(?P<wid>[A-Za-z0-9._:-]+)(?:@(?P<rev>\d+))?(?:/(?P<key>.+?)(?:@(?P<gen>\d+))?)?", re.DOTALL)


def parse_address(text: str) -> Address:
    """`wid`, `wid/key`, `wid@revision/key@generation`; a run's request id may stand for its wid. Raises
    `InvalidValue`."""
    found = _address().fullmatch(text)
    if found is None:
        raise InvalidValue(f"not an address: {text!r:.200}", hint="<workflow>/<key>, as status prints it")
    revision, generation = (int(number) if number else None for number in (found["rev"], found["gen"]))
    return Address(found["wid"], found["key"], revision, generation)


def execution_id(workflow: str, revision: int, key: str, generation: int, attempt: int, launch: int) -> str:
    """`<wid>@r/<key>@g#a.e`: the a-th attempt of a generation (losses count), and its e-th launch."""
    return f"{workflow}@{revision}/{key}@{generation}#{attempt}.{launch}"


def call_of(workflow: str, key: str) -> str:
    """The address of a call, and the key of its documents."""
    return f"{workflow}/{key}"


def generation_of(workflow: str, key: str, generation: int) -> str:
    return f"{workflow}/{key}@{generation}"
