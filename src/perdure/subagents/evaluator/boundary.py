"""What a script's process may do, kept by the kernel. Imported by the child alone; nothing of ours is imported here.

After `close_in` the process has only the system calls that computing, memory and its open pipes need: it can open no
file, make no socket, start nothing. seccomp(2); the numbers are those of asm/unistd.h.
"""

import ctypes
import platform
import resource
import struct

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | 1
"""SECCOMP_RET_ERRNO with EPERM."""
KILL = 0x80000000
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06

NAMES = (
    "read", "write", "close", "fstat", "lseek", "mmap", "mprotect", "munmap", "brk", "rt_sigaction", "rt_sigprocmask",
    "rt_sigreturn", "mremap", "madvise", "exit", "exit_group", "futex", "clock_gettime", "getrandom", "sigaltstack",
    "gettid", "getpid", "rseq", "set_robust_list", "sched_yield", "restart_syscall", "clock_nanosleep",
)  # fmt: skip
NUMBERS = {
    "x86_64": (
        0xC000003E,
        (0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 25, 28, 60, 231, 202, 228, 318, 131, 186, 39, 334, 273, 24, 219,
         230),
    ),
    "aarch64": (
        0xC00000B7,
        (63, 64, 57, 80, 62, 222, 226, 215, 214, 134, 135, 139, 216, 233, 93, 94, 98, 113, 278, 132, 178, 172, 293, 99,
         124, 128, 115),
    ),
}  # fmt: skip
MEMORY_BYTES = 256 * 1024 * 1024
FILES = 16


def limit(memory: int = MEMORY_BYTES) -> None:
    """Bounds on memory and open files, and no core dumps."""
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def close_in() -> None:
    """From now on only these system calls. Raises `OSError` where the kernel cannot do it."""
    machine = platform.machine()
    if machine not in NUMBERS:
        raise OSError(f"scripts cannot be closed in on {machine}")
    arch, numbers = NUMBERS[machine]
    allowed = list(numbers)
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, arch), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    for number in allowed:
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    program.append((RETURN, 0, 0, REFUSE))
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    held = ctypes.create_string_buffer(code)
    filters = struct.pack("HxxxxxxP", len(program), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(filters), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")
