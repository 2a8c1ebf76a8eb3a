"""A real OpenSSH server on loopback, for one test run: its own keys, its own configuration, its own port."""

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from getpass import getuser
from pathlib import Path
from typing import Any

from perdure.env.ssh import SshHost

READY_SECONDS = 10.0


def why_no_server() -> str | None:
    """What is missing for a server of our own; None where it can run."""
    if sshd_path() is None:
        return "no sshd on this machine (install openssh-server)"
    if shutil.which("ssh-keygen") is None:
        return "no ssh-keygen on this machine (install openssh-client)"
    return None


@cache
def sshd_path() -> str | None:
    """It must be run by its whole path."""
    return shutil.which("sshd") or next((path for path in ("/usr/sbin/sshd",) if os.path.exists(path)), None)


@dataclass
class Server:
    """A server that runs."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"{getuser()}@127.0.0.1:{self.port}"

    @property
    def login(self) -> dict[str, Any]:
        """Options that trust this server and have its key."""
        return {"keys": [self.folder / "key"], "known_hosts": self.folder / "known_hosts", "config": None}

    def host(self, **changed: Any) -> SshHost:
        """A host that can be logged into."""
        return SshHost(self.address, **{**self.login, **changed})

    def sessions(self) -> list[int]:
        """Processes of the server that serve a connection: its children, and theirs where privileges are divided."""
        return [pid for child in children(self.process.pid) for pid in (*children(child), child)]

    def drop_connections(self) -> None:
        """Kill what serves the connections, as a broken line does: nobody says goodbye."""
        for pid in self.sessions():
            try:
                if Path(f"/proc/{pid}/comm").read_text().strip() == "sshd":
                    os.kill(pid, 9)
            except (ProcessLookupError, FileNotFoundError):
                continue

    def stop(self) -> None:
        """End the server and what serves its connections."""
        self.drop_connections()
        self.process.kill()
        self.process.wait()


def children(pid: int) -> list[int]:
    """Of a process, by the kernel's own list."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def start(folder: Path, *, port: int | None = None) -> Server:
    """Start a server whose keys and logs lie in the folder; on a port that it had before, or on a free one."""
    folder.chmod(0o700)
    for name in ("host_key", "key"):
        if not (folder / name).exists():
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True)
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    if port is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\n"
        f"HostKey {folder}/host_key\n"
        f"PidFile {folder}/pid\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\nPrintMotd no\nUseDNS no\nMaxStartups 100\n"
    )
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where it locks itself away before a login
    sshd = sshd_path()
    assert sshd is not None
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen([sshd, "-D", "-e", "-f", f"{folder}/sshd_config"], stderr=log)
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return Server(folder, port, process)
        time.sleep(0.02)
    process.kill()
    process.wait()
    raise RuntimeError(f"sshd does not start: {(folder / 'log').read_text()}")
