"""What can go wrong with files and commands, as a tool tells its model."""

import errno
import os
from typing import Final

from perdure.base.errors import Certain, Error


class EnvError(Error):
    """A file or command could not be used. `path` names it."""

    code = "env_error"

    def __init__(self, what: str, *, path: str = "", hint: str = "", certain: Certain | None = None) -> None:
        super().__init__(what, hint=hint, certain=certain)
        self.path = path


class FileNotThere(EnvError):
    """No such file or folder."""

    code = "file_not_found"


class IsFolder(EnvError):
    """A folder where a file was wanted."""

    code = "is_folder"


class NotFolder(EnvError):
    """A file where a folder was wanted."""

    code = "not_folder"


class NotAllowed(EnvError):
    """The permissions forbid it."""

    code = "not_allowed"


class NoSpace(EnvError):
    """The disk is full, or a quota is."""

    code = "no_space"


class BadPath(EnvError):
    """A path that cannot be one."""

    code = "bad_path"


class BadCommand(EnvError):
    """A command that cannot be run."""

    code = "bad_command"


class BadPattern(EnvError):
    """A pattern of a search that cannot be one."""

    code = "bad_pattern"


class NotReachable(EnvError):
    """The machine or container cannot be reached, or cannot do what is needed there. Nothing was done."""

    code = "not_reachable"


class HostKeyRefused(NotReachable):
    """The machine's key is not known, or not the one that is known. Nothing was sent to it."""

    code = "host_key_refused"


class LoginRefused(NotReachable):
    """The machine takes none of the keys that were offered."""

    code = "login_refused"


class ConnectionLost(EnvError):
    """The connection broke in the middle. What was asked for may have been done, in part too for a command."""

    code = "connection_lost"
    certain_by_default = "unknown"


_KINDS: Final = {
    errno.ENOENT: (FileNotThere, "does not exist"),
    errno.EISDIR: (IsFolder, "is a folder"),
    errno.ENOTDIR: (NotFolder, "is not a folder, or lies below a file"),
    errno.EACCES: (NotAllowed, "may not be used: permission denied"),
    errno.EPERM: (NotAllowed, "may not be changed: operation not permitted"),
    errno.EROFS: (NotAllowed, "lies on a read-only file system"),
    errno.ENOSPC: (NoSpace, "cannot be written: no space left on the disk"),
    errno.EDQUOT: (NoSpace, "cannot be written: the disk quota is used up"),
    errno.ENAMETOOLONG: (BadPath, "is too long for a path"),
    errno.ELOOP: (BadPath, "is a circle of links"),
    errno.EEXIST: (NotFolder, "lies below something that is not a folder"),
    errno.EFBIG: (NoSpace, "cannot be written: larger than a file may be here"),
    errno.ETXTBSY: (NotAllowed, "may not be written while it runs as a program"),
    errno.ENXIO: (EnvError, "is no regular file (a device, pipe or socket)"),
    errno.EBUSY: (NotAllowed, "cannot be replaced: it is in use, or a mount point"),
}


def env_error(error: OSError | ValueError, path: str) -> EnvError:
    """An operating system's error as ours."""
    shown = path if len(path) <= 200 else path[:200] + "…"
    if isinstance(error, OSError):
        kind, what = _KINDS.get(error.errno or 0, (EnvError, f"cannot be used: {error.strerror or error}"))
        return kind(f"{shown} {what}", path=path)
    return BadPath(f"not a path: {shown!r}: {_plainly(error)}", path=path)


def command_error(error: OSError | ValueError) -> EnvError:
    """Why a command could not be started, as ours: its folder, or what was to be run."""
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return BadCommand("the command is longer than the system takes", hint="put it into a file and run that")
    if isinstance(error, OSError) and error.filename is None:  # no process, memory or descriptor left
        return EnvError(f"the command cannot be started now: {error.strerror or error}")
    if isinstance(error, OSError):
        return env_error(error, os.fsdecode(error.filename))
    return BadCommand(f"the command cannot be run: {_plainly(error)}")


def _plainly(error: ValueError) -> str:
    return "it contains text that is no valid Unicode" if isinstance(error, UnicodeError) else str(error)
