"""Another machine over SSH as an execution environment. Needs the extra `perdure[ssh]`, and Python 3.9 there."""

import asyncio
import contextlib
import os
import shlex
from collections.abc import Sequence
from typing import Any, Final

from perdure.env import far_program
from perdure.env.errors import ConnectionLost, EnvError, HostKeyRefused, LoginRefused, NotReachable
from perdure.env.far import READ_BYTES, FarSide
from perdure.env.far_env import FarEnv

try:
    import asyncssh
except ImportError as missing:
    raise ImportError("SshEnv needs asyncssh, which the extra brings: pip install 'perdure[ssh]'") from missing

SESSIONS_PER_CONNECTION: Final = 8
"""Channels at once; OpenSSH's server allows ten. For more a further connection is opened."""
KEEPALIVE_SECONDS: Final = 15.0
KEEPALIVES_UNANSWERED: Final = 2
"""After so many in a row the connection is taken for broken: 45 seconds, before the far side's lease ends."""
CONNECT_SECONDS: Final = 20.0
CONNECT_PAUSES: Final = (0.2, 1.0)
"""Before a further try, where the machine did not answer: it may be starting up."""
STDERR_BYTES: Final = 2_000


class SshHost:
    """One machine, and the connections to it, shared by any number of `SshEnv`. Connects when first used.

    `address` is `[user@]host[:port]` or a name of the user's SSH configuration, which is honoured like that of `ssh`;
    `config=None` reads none. The machine's key must be in `known_hosts` (default: the user's own file), or be
    `host_key`, a line as in a `.pub` file. An unknown key is refused, a changed one too. Keys come from `keys` (paths),
    else from the agent and the user's usual files. Nothing is ever typed in: what would ask for a password fails.

    Use it in `async with`, or call `close`. It belongs to one event loop. A connection that breaks is opened anew when
    next used.
    """

    def __init__(
        self,
        address: str,
        *,
        keys: Sequence[str | os.PathLike[str]] = (),
        known_hosts: str | os.PathLike[str] | None = None,
        host_key: str | None = None,
        config: str | os.PathLike[str] | tuple[()] | None = (),
        python: str = "python3",
        options: dict[str, Any] | None = None,
    ) -> None:
        self._user, self._host, self._port = _parts(address)
        self._python = python
        self._options = {
            "username": self._user if self._user else (),
            "port": self._port if self._port else (),
            "client_keys": [os.fspath(key) for key in keys] if keys else (),
            "known_hosts": _trusted(known_hosts, host_key),
            "config": config if config is None or config == () else os.fspath(config),  # type: ignore[arg-type]
            "keepalive_interval": KEEPALIVE_SECONDS,
            "keepalive_count_max": KEEPALIVES_UNANSWERED,
            "connect_timeout": CONNECT_SECONDS,
            "login_timeout": CONNECT_SECONDS,
            "preferred_auth": "publickey",
            **(options or {}),
        }
        self._connections: list[_Connection] = []
        self._connecting = asyncio.Lock()
        self.far = FarSide(self)
        """What the environments of this machine share."""

    @property
    def name(self) -> str:
        return f"{self._user}@{self._host}" if self._user else self._host

    @property
    def id(self) -> str:
        """`ssh:` and the address."""
        return f"ssh:{self.name}:{self._port or ''}".rstrip(":")

    async def open(self, marks: dict[str, str], python: str | None) -> "SshChannel":
        """Start the far side's bootstrap in a channel of its own. Raises `NotReachable` and its kind."""
        command = "exec " + shlex.join(far_program.words(python or self._python, marks))
        for fresh in (False, True):
            connection = await self._connection(fresh=fresh)
            connection.sessions += 1
            try:
                process = await connection.ssh.create_process(command, encoding=None)
            except (asyncssh.Error, OSError) as error:
                connection.sessions -= 1
                if fresh:
                    raise NotReachable(f"{self.name} opens no session: {error}") from error
                continue  # it broke unnoticed, or the server allows fewer sessions than usual
            except BaseException:
                connection.sessions -= 1
                raise
            return SshChannel(self.name, self._python, connection, process)
        raise AssertionError("the second try returns or raises")

    async def close(self) -> None:
        """Close the connections. What still ran there through them ends."""
        await self.far.close()
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.ssh.close()
        for connection in connections:
            with contextlib.suppress(asyncssh.Error, OSError):
                await connection.ssh.wait_closed()

    async def __aenter__(self) -> "SshHost":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _connection(self, *, fresh: bool) -> "_Connection":
        """A connection with room for a session."""
        async with self._connecting:
            self._connections = [known for known in self._connections if not known.ssh.is_closed()]
            for known in self._connections if not fresh else ():
                if known.sessions < SESSIONS_PER_CONNECTION:
                    return known
            made = _Connection(await self._connect())
            self._connections.append(made)
            return made

    async def _connect(self) -> asyncssh.SSHClientConnection:
        for pause in (*CONNECT_PAUSES, None):
            try:
                return await asyncssh.connect(self._host, **self._options)
            except asyncssh.HostKeyNotVerifiable as error:
                hint = f"check the key, then add it to known_hosts: ssh-keyscan {self._host}"
                raise HostKeyRefused(f"the key of {self.name} is not trusted: {error}", hint=hint) from error
            except asyncssh.PermissionDenied as error:
                raise LoginRefused(f"{self.name} refuses the login: {error}", hint="check user and keys") from error
            except (OSError, TimeoutError, asyncssh.ConnectionLost) as error:
                if pause is None or isinstance(error, TimeoutError):
                    raise NotReachable(f"{self.name} cannot be reached: {str(error) or 'no answer in time'}") from error
                await asyncio.sleep(pause)
            except (asyncssh.Error, asyncssh.KeyImportError, ValueError) as error:
                raise NotReachable(f"{self.name} cannot be connected to: {error}") from error
        raise AssertionError("the last try returns or raises")


class SshEnv(FarEnv):
    """Files and processes of another machine. `cwd` is where relative paths begin and commands run, by default the
    login's own folder.

    Given an address, it connects for itself and `close` closes that; environments of one `SshHost` share connections,
    which is what a function for `env=` wants: it is called for every tool call.
    """

    def __init__(self, host: SshHost | str, cwd: str | None = None, **options: Any) -> None:
        self._own = SshHost(host, **options) if isinstance(host, str) else None
        used = self._own or host
        assert isinstance(used, SshHost)
        super().__init__(used.far, used.id, cwd)

    async def close(self) -> None:
        """Close its own connection, if it has one."""
        if self._own is not None:
            await self._own.close()


class _Connection:
    """A connection, and how many sessions are open in it."""

    def __init__(self, ssh: asyncssh.SSHClientConnection) -> None:
        self.ssh = ssh
        self.sessions = 0


class SshChannel:
    """A program on the other machine, in an SSH session."""

    def __init__(
        self, name: str, python: str, connection: _Connection, process: asyncssh.SSHClientProcess[bytes]
    ) -> None:
        self._name = name
        self._python = python
        self._connection = connection
        self._process = process
        self._open = True

    async def read(self) -> bytes:
        try:
            data: bytes = await self._process.stdout.read(READ_BYTES)
        except (asyncssh.Error, OSError):
            return b""
        return data

    def send(self, data: bytes) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            self._process.stdin.write(data)

    async def drain(self) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            await self._process.stdin.drain()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._connection.sessions -= 1
            with contextlib.suppress(asyncssh.Error, OSError):
                self._process.close()

    async def why(self) -> EnvError:
        with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._process.wait_closed()
        code = self._process.exit_status
        if self._process.exit_signal is None and code is None:
            return ConnectionLost(
                f"the connection to {self._name} broke",
                hint="what had been done there stays done; what still runs there is ended",
            )
        said = ""
        with contextlib.suppress(asyncssh.Error, OSError):
            said = (await self._process.stderr.read(STDERR_BYTES)).decode("utf-8", "replace").strip()
        if code in (126, 127):
            wanted = ".".join(map(str, far_program.OLDEST_PYTHON))
            hint = f"install Python {wanted} or newer there, or name it: python="
            return NotReachable(f"{self._name} cannot run {self._python}: {said}", hint=hint)
        how = f"exit code {code}" if code is not None else f"signal {self._process.exit_signal}"
        return EnvError(f"what serves us on {self._name} ended ({how}) {said}".rstrip())


def _parts(address: str) -> tuple[str, str, int | None]:
    """User, host and port of `[user@]host[:port]`."""
    user, _, place = address.rpartition("@")
    host, colon, port = place.rpartition(":")
    if not colon or "]" in port:
        host, port = place, ""
    host = host.strip("[]") if host.startswith("[") else host
    if not host or any(character.isspace() or not character.isprintable() for character in address):
        raise NotReachable(f"not an address of a machine: {address!r}", hint="write [user@]host[:port]")
    if host.count(":") == 0 and port and not port.isdigit():
        raise NotReachable(f"not a port: {port!r}", hint="write [user@]host[:port]")
    return user, host, int(port) if port else None


def _trusted(known_hosts: str | os.PathLike[str] | None, host_key: str | None) -> Any:
    """What asyncssh takes for `known_hosts`; its None would trust everybody, and is never given."""
    if host_key is not None:
        return ([asyncssh.import_public_key(host_key)], [], [])
    return () if known_hosts is None else os.fspath(known_hosts)
