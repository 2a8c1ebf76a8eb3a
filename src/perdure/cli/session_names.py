"""Sessions by name: files in one folder. A name never leads out of it."""

import os
import re
from pathlib import Path
from typing import Final

import platformdirs

from perdure.base.errors import InvalidValue, NotFound
from perdure.cli.config import Config

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
SUFFIX: Final = ".db"


def sessions_folder(config: Config) -> Path:
    """Where sessions lie; made when the first one is created."""
    configured = os.environ.get("PERDURE_SESSIONS") or config.sessions
    return Path(configured).expanduser() if configured else Path(platformdirs.user_data_dir("perdure")) / "sessions"


def new_session(config: Config, name: str) -> Path:
    """The file of a session that may not exist yet."""
    check_name(name)
    folder = sessions_folder(config)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / f"{name}{SUFFIX}"


def find_session(config: Config, name: str) -> Path:
    """An existing session by its name, a unique beginning of it, or the path of its file. Raises `NotFound`."""
    if os.sep in name or name.endswith(SUFFIX):
        path = Path(name)
        if path.is_file():
            return path
        raise NotFound(f"no session file {name!r}")
    check_name(name)
    names = list_names(config)
    if name in names:
        return sessions_folder(config) / f"{name}{SUFFIX}"
    matching = [known for known in names if known.startswith(name)]
    if len(matching) == 1:
        return sessions_folder(config) / f"{matching[0]}{SUFFIX}"
    if matching:
        raise NotFound(f"{name!r} could be any of {', '.join(matching[:10])}", hint="give more of the name")
    raise NotFound(f"no session {name!r}", hint="`perdure sessions` lists them")


def list_names(config: Config) -> list[str]:
    """All session names, newest first."""
    folder = sessions_folder(config)
    if not folder.is_dir():
        return []
    files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.name.removesuffix(SUFFIX) for path in files]


def check_name(name: str) -> None:
    """Refuse what is no plain name."""
    if not NAME.fullmatch(name) or ".." in name:
        raise InvalidValue(
            f"not a session name: {name[:80]!r}",
            hint="1 to 64 letters, digits, '.', '_' or '-', beginning with one of the first two",
        )
