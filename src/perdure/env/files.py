"""Files of this machine: ranged reads, whole-or-nothing writes. Blocking; callers run it in a thread."""

import contextlib
import os
import stat as modes
from collections.abc import Iterator

from perdure.env.errors import BadPath, EnvError, IsFolder, NotAllowed, env_error
from perdure.env.protocol import FileStat


def read(path: str, offset: int, limit: int | None) -> bytes:
    """Bytes of a file from `offset`, at most `limit`; empty behind its end. Pipes and devices are refused."""
    with _typed_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without writer would block
        with open(descriptor, "rb") as file:
            _check_regular(os.fstat(descriptor), path)
            file.seek(offset)
            return file.read(-1 if limit is None else limit)


def write(path: str, data: bytes) -> None:
    """Replace a file as a whole: written without a name, flushed, then given its name. Missing folders are made.

    Links are followed; mode and, where allowed, owner are kept. A crash leaves the old file or the new one. Other hard
    links to the old file keep the old content.
    """
    with _typed_errors(path):
        target = os.path.realpath(path)
        before = _existing(target, path)
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        beside = os.path.join(folder, f".perdure-{os.urandom(8).hex()}.tmp")
        try:
            _write_beside(folder, beside, data, before)
            os.replace(beside, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
            raise
        _flush_folder(folder)


def stat(path: str) -> FileStat:
    """What is known of a path; a link is followed, a broken one is a link."""
    with _typed_errors(path):
        try:
            found = os.stat(path)
        except FileNotFoundError:
            found = os.lstat(path)
        return _file_stat(found)


def listing(path: str) -> list[tuple[str, FileStat]]:
    """Names in a folder with what is known of them, by name; links are not followed. What vanishes is left out."""
    found = []
    with _typed_errors(path):
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.name, _file_stat(entry.stat(follow_symlinks=False))))
    return sorted(found, key=lambda item: item[0])


def resolve(path: str) -> str:
    """The absolute path with links followed; the end of it need not exist."""
    with _typed_errors(path):
        if "\0" in path:
            raise BadPath("a path cannot contain a NUL character", path=path)
        return os.path.realpath(path)


@contextlib.contextmanager
def _typed_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise env_error(error, path) from error


def _check_regular(found: os.stat_result, path: str) -> None:
    if modes.S_ISDIR(found.st_mode):
        raise IsFolder(f"{path} is a folder", path=path)
    if not modes.S_ISREG(found.st_mode):
        raise EnvError(f"{path} is no regular file (a device, pipe or socket)", path=path)


def _existing(target: str, path: str) -> os.stat_result | None:
    """The file that will be replaced. A rename does not ask for its permission, so that is done here."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    _check_regular(found, path)
    if not os.access(target, os.W_OK):
        raise NotAllowed(f"{path} may not be written: permission denied", path=path)
    return found


def _write_beside(folder: str, beside: str, data: bytes, before: os.stat_result | None) -> None:
    """A new flushed file. It has no name until it is complete, where the file system can do that."""
    mode = 0o666 if before is None else 0o600  # a new file gets what the umask leaves
    nameless = True
    try:
        descriptor = os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, mode)
    except OSError:
        nameless = False
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        if before is not None:
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fchmod(descriptor, modes.S_IMODE(before.st_mode))  # after the owner, whose change clears bits
        os.fsync(descriptor)
        if nameless:
            _give_name(descriptor, folder, beside)


def _give_name(descriptor: int, folder: str, name: str) -> None:
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # a folder's descriptor, because only then the link to our open file is followed
        os.link(f"/proc/self/fd/{descriptor}", os.path.basename(name), dst_dir_fd=at, follow_symlinks=True)
    finally:
        os.close(at)


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
