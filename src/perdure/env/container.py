"""A container as an execution environment, through the command line of Docker or Podman. Needs Python 3.9 inside."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.env import far_program
from perdure.env.errors import ConnectionLost, EnvError, NotReachable
from perdure.env.far import READ_BYTES, FarSide
from perdure.env.far_env import FarEnv

ENGINES: Final = ("docker", "podman")
"""Looked for in this order."""
ENGINE_SECONDS: Final = 120.0
"""For one command of the engine; making a container may fetch its image first."""
LEAVE_SECONDS: Final = 5.0
"""For the engine's command to end when its input has ended, before it is killed."""
STDERR_BYTES: Final = 2_000
KILLED: Final = (137, 143, -9, -15)
"""Exit codes of a program inside that a signal ended, as engines tell it."""
KEEPS_RUNNING: Final = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done")
"""A container's first program: waits, collects what others left to it, and ends when it is asked to."""


class Container:
    """One container that runs, shared by any number of `ContainerEnv`. Made by nobody but you, or by `Container.run`.

    `name` is its name or id. The engine is the first of docker and podman on the path, or `engine`. What is executed
    runs as `user` (default: the container's own). Use it in `async with`, or call `close`.
    """

    def __init__(
        self, name: str, *, engine: str | None = None, user: str | None = None, python: str = "python3"
    ) -> None:
        self._container = _checked(name, "a container")
        self._engine = engine or _installed_engine()
        self._user = ("--user", _checked(user, "a user")) if user else ()
        self._python = python
        self._remove = False
        self._leaving: set[asyncio.Task[None]] = set()
        self.far = FarSide(self)
        """What the environments in this container share."""

    @classmethod
    async def run(
        cls,
        image: str,
        *,
        name: str | None = None,
        options: Sequence[str] = (),
        engine: str | None = None,
        user: str | None = None,
        python: str = "python3",
        keep: bool = False,
    ) -> "Container":
        """Start a container that does nothing but be there. `options` go to the engine's `run` (mounts, network …).

        With a `name`, one that exists already is used, and started if it is stopped: so a conversation finds its own
        again after a restart. `close` removes it unless it is to be `keep`t. Raises `NotReachable`.
        """
        _checked(image, "an image")
        made = cls(name or f"perdure-{os.urandom(8).hex()}", engine=engine, user=user, python=python)
        if name is None or not await made._there():
            try:
                await made._engine_says("run", "--detach", "--name", made._container, *options, image, *KEEPS_RUNNING)
            except BaseException:
                with contextlib.suppress(NotReachable):
                    await made._engine_says("rm", "--force", made._container)  # one that did not start is left behind
                raise
        made._remove = not keep
        return made

    @property
    def name(self) -> str:
        return f"container {self._container[:64]}"

    @property
    def id(self) -> str:
        """`container:` and the name."""
        return f"container:{self._container}"

    async def open(self, marks: dict[str, str], python: str | None) -> "ContainerChannel":
        """Start the far side's bootstrap inside. Raises `NotReachable`."""
        words = far_program.words(python or self._python, marks)
        try:
            process = await asyncio.create_subprocess_exec(
                self._engine,
                *("exec", "--interactive", *self._user, self._container, *words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                limit=READ_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise NotReachable(f"{self._engine} cannot be run: {error.strerror}") from error
        return ContainerChannel(self.name, self._python, process, self._leave)

    async def close(self) -> None:
        """End what still runs inside through us, and remove the container if it is ours."""
        await self.far.close()
        if self._leaving:
            await asyncio.wait(self._leaving)
        if self._remove:
            self._remove = False
            await self._engine_says("rm", "--force", "--volumes", self._container)

    async def __aenter__(self) -> "Container":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _there(self) -> bool:
        """Whether the container exists; then it runs afterwards."""
        try:
            await self._engine_says("container", "inspect", "--format", "{{.Id}}", self._container)
        except NotReachable as error:
            if "no such" in str(error).lower():
                return False
            raise
        await self._engine_says("start", self._container)
        return True

    async def _engine_says(self, *words: str) -> str:
        """Run a command of the engine to its end."""
        try:
            process = await asyncio.create_subprocess_exec(
                self._engine,
                *words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise NotReachable(f"{self._engine} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(ENGINE_SECONDS):
                out, err = await process.communicate()
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                raise NotReachable(f"{self._engine} {words[0]} does not end") from error
            raise
        if process.returncode != 0:
            raise NotReachable(f"{self._engine} {words[0]}: {_text(err)}")
        return out.decode("utf-8", "replace")

    def _leave(self, process: asyncio.subprocess.Process) -> None:
        leaving = asyncio.ensure_future(_left(process))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)


class ContainerEnv(FarEnv):
    """Files and processes of a container. `cwd` is where relative paths begin and commands run, by default the user's
    own folder inside.

    Given a name, `close` ends what it holds of the container, which itself is left alone; environments of one
    `Container` share all that, which is what a function for `env=` wants: it is called for every tool call.
    """

    def __init__(self, container: Container | str, cwd: str | None = None, **options: Any) -> None:
        self._own = Container(container, **options) if isinstance(container, str) else None
        used = self._own or container
        assert isinstance(used, Container)
        super().__init__(used.far, used.id, cwd)

    async def close(self) -> None:
        """Let go of the container, if it was given by its name."""
        if self._own is not None:
            await self._own.close()


class ContainerChannel:
    """A program inside, at the other end of the engine's `exec`."""

    def __init__(
        self,
        name: str,
        python: str,
        process: asyncio.subprocess.Process,
        leave: Callable[[asyncio.subprocess.Process], None],
    ) -> None:
        self._name = name
        self._python = python
        self._process = process
        self._leave = leave
        self._heard = b""
        self._begun = False
        self._open = True
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr

    async def read(self) -> bytes:
        try:
            data = await self._stdout.read(READ_BYTES)
        except OSError:
            return b""
        self._begun = self._begun or far_program.MAGIC in data
        self._heard = data[:STDERR_BYTES]
        return data

    def send(self, data: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(data)

    async def drain(self) -> None:
        with contextlib.suppress(OSError):
            await self._stdin.drain()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._stdin.close()
            self._leave(self._process)

    async def why(self) -> EnvError:
        said = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                said = await self._stderr.read(STDERR_BYTES)
                await self._process.wait()
        code = self._process.returncode
        if self._begun:
            if code in KILLED:
                return EnvError(f"what serves us in {self._name} was killed")
            hint = "what had been done inside stays done; what still runs there is ended"
            return ConnectionLost(f"{self._name} is gone: {_text(said) or 'it ended'}", hint=hint)
        if code in (126, 127):
            wanted = ".".join(map(str, far_program.OLDEST_PYTHON))
            hint = f"use an image with Python {wanted} or newer, or name it: python="
            return NotReachable(f"{self._name} cannot run {self._python}: {_text(said or self._heard)}", hint=hint)
        return NotReachable(f"{self._name} cannot be used: {_text(said or self._heard)}", hint="is it running?")


async def _left(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of the engine's command; what it still says is dropped."""
    try:
        async with asyncio.timeout(LEAVE_SECONDS):
            await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _installed_engine() -> str:
    for engine in ENGINES:
        if shutil.which(engine):
            return engine
    raise NotReachable("there is no container engine on this machine", hint="install docker or podman")


def _checked(name: str, what: str) -> str:
    """A name that the engine cannot take for an option, or for several words."""
    if not name or name.startswith("-") or not name.isprintable() or any(c.isspace() for c in name):
        raise NotReachable(f"not a name of {what}: {name!r}")
    return name


def _text(said: bytes) -> str:
    return " ".join(said.decode("utf-8", "replace").split())
