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
LINES_SUFFIX: Final = ".jsonl"
BEGINNINGS: Final = (b"SQLite format 3\0", b'{"crc":"')
"""How the file of a session begins: a database, or lines."""


def sessions_folder(config: Config) -> Path:
    """Where sessions lie; made when the first one is created."""
    configured = os.environ.get("PERDURE_SESSIONS") or config.sessions
    return Path(configured).expanduser() if configured else Path(platformdirs.user_data_dir("perdure")) / "sessions"


def new_session(config: Config, name: str) -> Path:
    """The file of a session that may not exist yet."""
    check_name(name)
    folder = sessions_folder(config)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return _inside(folder, name)


def find_session(config: Config, name: str) -> Path:
    """An existing session by its name, a unique beginning of it, or the path of its file. Raises `NotFound`."""
    if "\0" in name:
        check_name(name)
    if os.sep in name or name.endswith((SUFFIX, LINES_SUFFIX)):
        path = Path(name)
        if not _is_file(path):
            raise NotFound(f"no session file {name[:200]!r}")
        with open(path, "rb") as file:  # before anything that opening a session leaves beside its file
            if not file.read(max(map(len, BEGINNINGS))).startswith(BEGINNINGS):
                raise NotFound(f"{name!r} holds no session")
        return path
    check_name(name)
    names = list_names(config)
    if name in names:
        return _inside(sessions_folder(config), name)
    matching = [known for known in names if known.startswith(name)]
    if len(matching) == 1:
        return _inside(sessions_folder(config), matching[0])
    if matching:
        raise NotFound(f"{name!r} could be any of {', '.join(matching[:10])}", hint="give more of the name")
    raise NotFound(f"no session {name!r}", hint="`perdure sessions` lists them")


def _is_file(path: Path) -> bool:
    """Also for what cannot be a path."""
    try:
        return path.is_file()
    except OSError:
        return False


def _inside(folder: Path, name: str) -> Path:
    """The session's file. A link that somebody put there leads nowhere else."""
    path = folder / f"{name}{SUFFIX}"
    if path.is_symlink() and path.resolve().parent != folder.resolve():
        raise InvalidValue(f"session {name!r} is a link that leads out of the folder of sessions")
    return path


def list_names(config: Config) -> list[str]:
    """All session names, newest first."""
    folder = sessions_folder(config)
    if not folder.is_dir():
        return []
    files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.lstat().st_mtime, reverse=True)
    return [path.name.removesuffix(SUFFIX) for path in files]


def check_name(name: str) -> None:
    """Refuse what is no plain name."""
    if not NAME.fullmatch(name) or ".." in name:
        raise InvalidValue(
            f"not a session name: {name[:80]!r}",
            hint="1 to 64 letters, digits, '.', '_' or '-', beginning with one of the first two",
        )
