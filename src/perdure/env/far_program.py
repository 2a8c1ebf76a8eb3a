"""What is sent to the far side of a connection: our own modules of the standard library's Python, and how to begin."""

import base64
import zlib
from functools import cache
from importlib.resources import files
from typing import Final

from perdure.env.containment import FAR_LAUNCHER

OLDEST_PYTHON: Final = (3, 9)
"""On the far side: the first with handles on processes."""
MODULES: Final = {
    "far_exec": ("launcher", "containment", "files", "far_exec"),
    "far_files": ("containment", "files", "globbing", "watching", "far_files"),
}
"""What each program consists of, in the order of their imports."""

MAGIC: Final = b"\0perdure "
"""How a program begins what it writes; a mark and the end of the line follow."""

BOOTSTRAP: Final = (
    'import os,zlib,base64;exec(zlib.decompress(base64.b64decode(b"".join(iter(lambda:os.read(0,1),b";")))))'
)
"""Reads the program byte by byte, so that nothing of what follows it is lost in a buffer. No quotes but double ones."""

LOADER: Final = """
import os, sys, types, __future__
if sys.version_info < {oldest}:
    sys.stderr.write("Python %d.%d is too old" % sys.version_info[:2])
    os._exit(126)
for package in ("perdure", "perdure.env"):
    sys.modules[package] = types.ModuleType(package)
for name, text in {sources}:
    module = types.ModuleType("perdure.env." + name)
    module.__file__ = name
    sys.modules[module.__name__] = module
    setattr(sys.modules["perdure.env"], name, module)
    exec(compile(text, name, "exec", __future__.annotations.compiler_flag, True), module.__dict__)
os.write(1, {magic!r})
module.main()
"""


def words(python: str, marks: dict[str, str]) -> list[str]:
    """The command that waits for a program, with marks in its environment by which it and its children are found."""
    given = [f"{name}={value}" for name, value in marks.items()]
    return ["env", *given, python, "-I", "-S", "-c", BOOTSTRAP, FAR_LAUNCHER]


def program(name: str, magic: bytes) -> bytes:
    """The program as the bootstrap reads it. It begins by writing `magic`: what comes before is somebody else's."""
    sources = [(module, _source(module)) for module in MODULES[name]]
    text = LOADER.format(oldest=OLDEST_PYTHON, sources=sources, magic=magic)
    return base64.b64encode(zlib.compress(text.encode())) + b";"


@cache
def _source(module: str) -> str:
    return (files("perdure.env") / f"{module}.py").read_text("utf-8")
