"""Files of this machine: ranged reads, whole-or-nothing writes. Blocking; callers run it in a thread."""

import contextlib
import os
import secrets
import stat as modes

from perdure.env.errors import IsFolder, env_error
from perdure.env.protocol import FileStat


def read(path: str, offset: int, limit: int | None) -> bytes:
    """Bytes of a file from `offset`, at most `limit`."""
    try:
        with open(path, "rb") as file:
            if modes.S_ISDIR(os.fstat(file.fileno()).st_mode):
                raise IsFolder(f"{path} is a folder", path=path)
            file.seek(offset)
            return file.read(-1 if limit is None else limit)
    except (OSError, ValueError) as error:
        raise env_error(error, path) from error


def write(path: str, data: bytes) -> None:
    """Replace a file as a whole: written beside it, flushed, renamed over it. Links are followed, the mode is kept."""
    try:
        target = os.path.realpath(path)
        if os.path.isdir(target):
            raise IsFolder(f"{path} is a folder", path=path)
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        mode = modes.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else 0o666 & ~_umask()
        beside = os.path.join(folder, f".perdure-{secrets.token_hex(8)}.tmp")
        try:
            _write_flushed(beside, data, mode)
            os.replace(beside, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
            raise
        _flush_folder(folder)
    except (OSError, ValueError) as error:
        raise env_error(error, path) from error


def stat(path: str) -> FileStat:
    """What is known of a path; a link is followed, a broken one is a link."""
    try:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            found = os.lstat(path)
        return _file_stat(found)
    except (OSError, ValueError) as error:
        raise env_error(error, path) from error


def listing(path: str) -> list[tuple[str, FileStat]]:
    """Names in a folder with what is known of them, by name. What vanishes meanwhile is left out."""
    found = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.name, _file_stat(entry.stat(follow_symlinks=False))))
    except (OSError, ValueError) as error:
        raise env_error(error, path) from error
    return sorted(found, key=lambda item: item[0])


def resolve(path: str) -> str:
    """The absolute path with links followed; the end of it need not exist."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise env_error(error, path) from error


def _write_flushed(path: str, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def _flush_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot flush a folder; the file itself is flushed
    finally:
        os.close(descriptor)


def _file_stat(found: os.stat_result) -> FileStat:
    mode = found.st_mode
    if modes.S_ISREG(mode):
        return FileStat("file", found.st_size, found.st_mtime)
    if modes.S_ISDIR(mode):
        return FileStat("directory", found.st_size, found.st_mtime)
    return FileStat("link" if modes.S_ISLNK(mode) else "other", found.st_size, found.st_mtime)


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current
