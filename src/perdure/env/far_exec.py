"""The far side of one command: between the channel to us and the launcher. Sent there as text: standard library only.

The channel brings a frame (sizes, a JSON object, the command's input), then single bytes: "k" to end the command, "b"
to say that we are still there. It takes back frames: a letter, four bytes with a length, and so many bytes. When the
channel closes, or says nothing for too long, everything that the command started is killed.
"""

import errno
import json
import os
import select
import signal
import struct
import sys
import time
from typing import Any

from perdure.env import containment, files, launcher

SIZES = struct.Struct(">IQ")
FRAME = struct.Struct(">cI")
STARTED, FAILED, STDOUT, STDERR, ENDED = b"s", b"f", b"o", b"e", b"x"
LEASE_SECONDS = 60.0
"""Without a word from us for so long, we are taken for dead: a broken line may never be told to the far side."""
PENDING_BYTES = 256 * 1024
"""Output that waits to be sent. More is left in the command's pipes, so that the command waits."""
CHUNK_BYTES = 64 * 1024
LATE_BYTES = 1024 * 1024
"""Still read when the launcher has ended: as much as a pipe can hold. A survivor may write for ever."""
LONGEST_ARGUMENT = 128 * 1024
"""linux/binfmts.h: MAX_ARG_STRLEN, with its end."""


def main() -> None:
    """Start what the first frame says, and stay until it and everything it started has ended."""
    sizes = SIZES.unpack(exactly(SIZES.size))
    request, data = json.loads(exactly(sizes[0])), exactly(sizes[1])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # the launcher hears them, and its report must still get through
    try:
        pump = start(request, data)
    except (OSError, ValueError) as error:
        say(FAILED, failure(error))
        os._exit(0)
    say(STARTED, {"launcher": pump.launcher})
    pump.run()
    os._exit(0)


def failure(error: Exception) -> dict[str, Any]:
    """An error as the other side reads it."""
    if isinstance(error, OSError):
        name = errno.errorcode.get(error.errno or 0, "")
        return {"errno": name, "text": error.strerror or str(error), "path": error.filename}
    return {"errno": "", "text": str(error), "path": None}


def exactly(size: int) -> bytes:
    """So many bytes of the channel; without them nothing is started."""
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, min(size - len(data), 1024 * 1024))
        if not piece:
            os._exit(0)
        data += piece
    return bytes(data)


def say(kind: bytes, value: dict[str, Any]) -> None:
    """Send a frame now."""
    text = json.dumps(value).encode()
    os.write(1, FRAME.pack(kind, len(text)) + text)


def start(request: dict[str, Any], data: bytes) -> "Pump":
    """Fork the launcher with the command. Raises OSError where that cannot be."""
    argv = request["argv"]
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        raise ValueError("commands cannot be contained there: that takes Linux and Python 3.9 or newer")
    if any(len(os.fsencode(word)) >= LONGEST_ARGUMENT for word in argv):
        raise OSError(errno.E2BIG, "Argument list too long")
    os.chdir(os.path.join(files.home(), *map(files.under_home, request["cwd"])))
    source = os.memfd_create("stdin")
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(source, rest) :]
    os.lseek(source, 0, os.SEEK_SET)
    alive, out, err, status = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            for descriptor in (alive[1], out[0], err[0], status[0]):
                os.close(descriptor)
            for number, descriptor in enumerate((source, out[1], err[1])):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.environ.update(request["env"])
            sys.argv = ["", str(alive[0]), str(status[1]), *argv]
            launcher.main()
        finally:
            os._exit(125)
    for descriptor in (source, alive[0], out[1], err[1], status[1]):
        os.close(descriptor)
    return Pump(child, alive[1], {out[0]: STDOUT, err[0]: STDERR}, status[0])


class Pump:
    """Carries output to us and our word to the launcher."""

    def __init__(self, child: int, alive: int, outputs: dict[int, bytes], status: int) -> None:
        self.launcher = child
        self.alive: int | None = alive
        self.outputs = outputs
        self.status: int | None = status
        self.pending = bytearray()
        self.heard = time.monotonic()
        self.late = 0
        self.gone = False
        """Nobody is at the other end any more."""
        self.end: dict[str, Any] | None = None

    def run(self) -> None:
        """Until the launcher has reported and all output is sent."""
        for descriptor in (0, 1, *self.outputs):
            os.set_blocking(descriptor, False)
        while self.status is not None or self.outputs or (self.pending and not self.gone):
            self.wait()

    def wait(self) -> None:
        """One turn: wait for something to do, and do it."""
        poll = select.poll()
        if not self.gone:
            poll.register(0, select.POLLIN)
            if self.pending:
                poll.register(1, select.POLLOUT)
        if self.status is not None:
            poll.register(self.status, select.POLLIN)
        room = len(self.pending) < PENDING_BYTES
        for descriptor in self.outputs if room else ():
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(1000)} if self.status is not None else {0, 1, *self.outputs}
        if 0 in ready and not self.gone:
            self.listen()
        if time.monotonic() - self.heard > LEASE_SECONDS:
            self.leave()
        for descriptor in list(self.outputs):
            if descriptor in ready and room:
                self.take(descriptor)
        if self.status is not None and self.status in ready:
            self.finish()
        if self.pending and not self.gone:
            self.send()
        if self.status is None and self.pending and not self.gone:
            select.select([0], [1], [], 1)

    def listen(self) -> None:
        """What we say, or that we are gone."""
        try:
            said = os.read(0, 4096)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self.heard = time.monotonic()
        if not said:
            self.leave()
        elif b"k" in said and self.alive is not None:
            os.write(self.alive, b"k")
            self.let_go()

    def leave(self) -> None:
        """The other end is gone: everything is killed, and nobody is told."""
        self.gone = True
        self.pending.clear()
        self.let_go()

    def let_go(self) -> None:
        """Close the launcher's pipe, at which it ends everything."""
        if self.alive is not None:
            os.close(self.alive)
            self.alive = None

    def take(self, descriptor: int) -> None:
        """Read some output. When the command has ended, what no survivor holds open ends too."""
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            data = None
        if data and not self.gone:
            self.pending += FRAME.pack(self.outputs[descriptor], len(data)) + data
        self.late += len(data or b"") if self.status is None else 0
        if data == b"" or self.late > LATE_BYTES or (data is None and self.status is None):
            os.close(descriptor)
            del self.outputs[descriptor]
            self.end_if_all_is_read()

    def finish(self) -> None:
        """The launcher has reported, or was killed: then what it kept together is found by its mark."""
        assert self.status is not None
        line = os.read(self.status, 4096).decode("utf-8", "replace")
        _, waited = os.waitpid(self.launcher, 0)
        self.let_go()
        if line:
            code, number, survivors = line.rstrip("\n").split("\t")
            end = {"code": code, "signal": number, "survivors": survivors.split(", ") if survivors else []}
        else:
            mark = os.environ[containment.EXECUTION_VARIABLE]
            left = list(containment.end_execution(mark, self.launcher))
            end = {"code": "", "signal": str(-os.waitstatus_to_exitcode(waited)), "survivors": left}
        os.close(self.status)
        self.status, self.end = None, end
        self.end_if_all_is_read()

    def end_if_all_is_read(self) -> None:
        """The last frame follows the last of the output."""
        if self.end is not None and not self.outputs and not self.gone:
            text = json.dumps(self.end).encode()
            self.pending += FRAME.pack(ENDED, len(text)) + text

    def send(self) -> None:
        """As much as the channel takes now."""
        try:
            sent = os.write(1, self.pending[:CHUNK_BYTES])
            del self.pending[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.leave()
