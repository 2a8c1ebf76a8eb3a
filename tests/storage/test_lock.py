"""Ownership: one at a time, named to others, and gone with the process."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from perdure.base.errors import StorageError, StorageInUse
from perdure.storage.lock import OwnerLock, _mount_of, _refuse_remote, lock_path, read_owner
from perdure.storage.records import Batch, Conversation
from perdure.storage.sqlite.store import SqliteStorage
from perdure.testing.storage_conformance import Script

HOLD = """
    import sys, time
    from perdure.storage.lock import OwnerLock
    lock = OwnerLock(sys.argv[1])
    lock.acquire()
    lock.publish(control="/run/socket")
    print("held", flush=True)
    time.sleep(60)
"""


def start(code: str, *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *args], stdout=subprocess.PIPE, text=True, env=environment()
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def stop(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_a_second_owner_in_the_same_process_is_refused_at_once(tmp_path: Path) -> None:
    first, second = OwnerLock(tmp_path / "s"), OwnerLock(tmp_path / "s")
    first.acquire()
    with pytest.raises(StorageInUse) as caught:
        second.acquire()
    assert caught.value.owner["pid"] == os.getpid()
    with pytest.raises(StorageInUse):
        first.acquire()
    first.release()
    first.release()
    second.acquire()
    second.release()


def test_the_lock_lies_beside_the_real_file(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "links" / "link"
    real.touch()
    link.parent.mkdir()
    link.symlink_to(real)
    lock = OwnerLock(link)
    lock.acquire()
    assert lock_path(link) == str(tmp_path / "real.lock")
    assert (tmp_path / "real.lock").exists()
    with pytest.raises(StorageInUse):
        OwnerLock(real).acquire()
    lock.release()


def test_an_owner_can_be_read_without_taking_the_lock(tmp_path: Path) -> None:
    store = tmp_path / "s"
    assert read_owner(store) is None
    lock = OwnerLock(store)
    lock.acquire()
    owner = read_owner(store)
    assert owner is not None
    assert owner["pid"] == os.getpid()
    assert owner["control"] is None
    lock.publish(control="unix:/run/x")
    assert (read_owner(store) or {})["control"] == "unix:/run/x"
    lock.publish(control="")
    assert (read_owner(store) or {})["control"] == ""
    lock.release()
    assert read_owner(store) is None
    with pytest.raises(StorageError):
        lock.publish(control="x")


@pytest.mark.slow
def test_another_process_is_named_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    process = start(HOLD, str(tmp_path / "s"))
    assert first_line(process) == "held"
    with pytest.raises(StorageInUse) as caught:
        OwnerLock(tmp_path / "s").acquire()
    assert caught.value.owner["pid"] == process.pid
    assert caught.value.owner["control"] == "/run/socket"
    assert str(process.pid) in str(caught.value)
    assert (read_owner(tmp_path / "s") or {})["pid"] == process.pid
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert json.loads((tmp_path / "s.lock").read_text())["pid"] == process.pid
    assert read_owner(tmp_path / "s") is None
    lock = OwnerLock(tmp_path / "s")
    lock.acquire()
    lock.release()


def test_a_lock_that_is_forgotten_is_free(tmp_path: Path) -> None:
    OwnerLock(tmp_path / "s").acquire()
    lock = OwnerLock(tmp_path / "s")
    lock.acquire()
    lock.release()


def test_a_lock_file_removed_meanwhile_does_not_fool_the_next_owner(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path / "s")
    lock.acquire()
    lock.release()
    (tmp_path / "s.lock").unlink()
    lock.acquire()
    assert read_owner(tmp_path / "s") is not None
    lock.release()


@pytest.mark.slow
def test_a_program_started_by_the_owner_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path / "s")
    lock.acquire()
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"],
        stdout=subprocess.PIPE,
        text=True,
        close_fds=False,
    )
    assert first_line(sleeper) == "up"
    lock.release()
    other = OwnerLock(tmp_path / "s")
    other.acquire()
    other.release()
    stop(sleeper)


def fork(work: "object") -> int:
    """Fork, run the work in the child, and give the child's exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_neither_owns_nor_frees(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path / "s")
    lock.acquire()

    def child() -> bool:
        held = lock.held
        lock.release()
        try:
            OwnerLock(tmp_path / "s").acquire()
        except StorageInUse:
            return not held
        return False

    assert fork(child) == 0
    assert lock.held
    with pytest.raises(StorageInUse):
        OwnerLock(tmp_path / "s").acquire()
    lock.release()


async def test_a_forked_child_cannot_write_to_its_parents_store(tmp_path: Path) -> None:
    store = SqliteStorage(tmp_path / "s.db", durability="process")
    await store.open()
    script = Script(store)
    await script.commit(conversations=[script.conversation()])

    def child() -> bool:
        try:
            store.commit(Batch(2, 3, conversations=[Conversation(2, 2)])).send(None)  # type: ignore[arg-type]
        except StorageError:
            return True
        return False

    assert fork(child) == 0
    await script.commit(conversations=[script.conversation()])
    await store.close()
    again = SqliteStorage(tmp_path / "s.db")
    assert (await again.open()).seq == 2
    await again.close()


MOUNTS = """\
22 1 0:20 / / rw - ext4 /dev/sda rw
30 22 0:40 / /nfs rw - nfs4 server:/x rw,vers=4.2,local_lock=none
31 22 0:41 / /nolock rw - nfs server:/x rw,nolock,local_lock=all
32 22 0:42 / /with\\040space rw - fuse.sshfs host: rw
33 30 0:43 / /nfs/local rw - ext4 /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        ("/data/s", "ext4"),
        ("/nfs/s", "nfs4"),
        ("/nfs/local/s", "ext4"),
        ("/nfsx/s", "ext4"),
        ("/with space/s", "fuse.sshfs"),
    ],
)
def test_the_mount_of_a_store_is_the_innermost(tmp_path: Path, store: str, kind: str) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    assert _mount_of(store, str(tmp_path / "mounts"))[0] == kind


def test_network_file_systems_without_working_locks_are_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    _refuse_remote("/data/s", str(mounts))
    _refuse_remote("/nfs/s", str(mounts))
    for store in ("/nolock/s", "/with space/s"):
        with pytest.raises(StorageError, match="without working locks"):
            _refuse_remote(store, str(mounts))
    assert _mount_of("/data/s", str(tmp_path / "none")) == ("", frozenset())
