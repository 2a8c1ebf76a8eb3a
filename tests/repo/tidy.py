"""The rules of style that can be counted. Each check takes source files and yields findings as `path:line: what`."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FILE_LINES = 400
FUNCTION_LINES = 60
LINE_LENGTH = 120
PUBLIC_METHODS = 15
PROTOCOL_METHODS = 20
"""A contract that others fill may ask for more: cut in two it would be harder to fill, not easier."""

WORDS_THAT_SAY_NOTHING = {"manager", "helper", "helpers", "util", "utils", "impl"}
CLASS_WORDS_THAT_SAY_NOTHING = WORDS_THAT_SAY_NOTHING | {"base"}

LAZY_ADAPTERS = {
    "src/perdure/models/provider.py",
    "src/perdure/base/patching.py",
    "src/perdure/env/local_watch.py",
    "src/perdure/subagents/file_changes.py",
}
"""The files that may import a dependency where it is used, for it is optional or slow to load. One file for each."""

INITS_WITH_NAMES = {"src/perdure/__init__.py", "src/perdure/tools/__init__.py", "src/perdure/testing/__init__.py"}
"""All other `__init__.py` are a docstring: what the room owns and what it may import."""

ENTRY_POINTS = (
    "perdure", "perdure.events", "perdure.wakes", "perdure.cli.main", "perdure.cli.__main__", "perdure.env.launcher",
    "perdure.env.ssh", "perdure.env.container", "perdure.subagents.host.__main__",
)  # fmt: skip
"""What a user imports or runs. `perdure.testing` is public too, but what nothing here uses is dead there as well."""

TESTS_ACROSS_ROOMS = {"repo", "crash", "traps", "simulation", "replay", "live", "examples"}

MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:work|root|Users|home)/\w+")
REGISTRY = re.compile(r"pypi[.]org|python[h]osted|npmj[s][.]|art[i]factory|proxy[.]golang|index[-]url", re.IGNORECASE)
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b")
"""Letters in brackets keep this file from finding itself."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file. `path` is relative to the repository, with forward slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def module(self) -> str:
        """The dotted name of a file of the package, else empty."""
        name = self.path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return name if self.in_package else ""

    @property
    def in_package(self) -> bool:
        return self.path.startswith("src/perdure/")

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))


def repository_files() -> list[str]:
    """Every file that is or may become part of the repository, tracked or not yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


def repository_sources() -> list[Source]:
    """Every Python file of the repository."""
    return [Source(name, (ROOT / name).read_text("utf-8")) for name in repository_files() if name.endswith(".py")]


def sizes(sources: Iterable[Source]) -> Iterator[str]:
    """Files, functions and lines fit on a screen or a few."""
    for source in sources:
        lines = source.text.splitlines()
        if len(lines) > FILE_LINES:
            yield f"{source.path}:1: {len(lines)} lines, at most {FILE_LINES}"
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_LENGTH:
                yield f"{source.path}:{number}: {len(line)} characters, at most {LINE_LENGTH}"
        for function in source.functions():
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{source.path}:{function.lineno}: {function.name} has {length} lines, at most {FUNCTION_LINES}"


def public_methods(sources: Iterable[Source]) -> Iterator[str]:
    """A class is counted by what it offers beyond the protocols it fills as a whole."""
    classes = [(source, node) for source in sources if source.in_package for node in source.classes()]
    protocols = [_methods(node) for _, node in classes if _is_protocol(node)]
    for source, node in classes:
        own, most = _methods(node), PROTOCOL_METHODS
        if not _is_protocol(node):
            own, most = own.difference(*(asked for asked in protocols if asked <= own)), PUBLIC_METHODS
        if len(own) > most:
            yield f"{source.path}:{node.lineno}: {node.name} has {len(own)} public methods, at most {most}"


def _methods(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, Function) and not item.name.startswith("_")}


def _is_protocol(node: ast.ClassDef) -> bool:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in bases)


def imports(sources: Iterable[Source]) -> Iterator[str]:
    """Imports stand at the top; nothing hides a cycle."""
    for source in sources:
        for function in source.functions() if source.path not in LAZY_ADAPTERS else ():
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield f"{source.path}:{node.lineno}: an import inside {function.name}"
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and any(name.name == "TYPE_CHECKING" for name in node.names):
                yield f"{source.path}:{node.lineno}: TYPE_CHECKING hides a cycle"
            if isinstance(node, ast.Attribute) and node.attr == "TYPE_CHECKING":
                yield f"{source.path}:{node.lineno}: TYPE_CHECKING hides a cycle"


def names(sources: Iterable[Source]) -> Iterator[str]:
    """A class and a module are called by what they are."""
    for source in sources:
        words = set(Path(source.path).stem.split("_"))
        for word in sorted(words & WORDS_THAT_SAY_NOTHING):
            yield f"{source.path}:1: a file called {word!r} says nothing"
        for node in source.classes():
            parts = {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", node.name)}
            for word in sorted(parts & CLASS_WORDS_THAT_SAY_NOTHING):
                yield f"{source.path}:{node.lineno}: {node.name}: {word!r} says nothing"


def docstrings(sources: Iterable[Source]) -> Iterator[str]:
    """Every module of the package says what it is for, and a room's `__init__` says nothing else."""
    for source in sources:
        if not source.in_package:
            continue
        if not ast.get_docstring(source.tree):
            yield f"{source.path}:1: no docstring"
        if source.path.endswith("/__init__.py") and source.path not in INITS_WITH_NAMES and len(source.tree.body) > 1:
            yield f"{source.path}:{source.tree.body[1].lineno}: a room's __init__ is a docstring only"


def unfinished(sources: Iterable[Source]) -> Iterator[str]:
    """No notes for later, and no body left open outside a protocol."""
    for source in sources:
        for number, line in enumerate(source.text.splitlines(), 1):
            if UNFINISHED.search(line):
                yield f"{source.path}:{number}: a note for later"
        declared = {id(item) for node in source.classes() if _is_protocol(node) for item in node.body}
        for function in source.functions() if source.in_package else ():
            if id(function) not in declared and _is_open(function):
                yield f"{source.path}:{function.lineno}: {function.name} has no body"


def _is_open(function: Function) -> bool:
    marks = {ast.unparse(mark).rpartition(".")[2] for mark in function.decorator_list}
    last = function.body[-1]
    is_dots = isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is Ellipsis
    return is_dots and not marks & {"overload", "abstractmethod"}


def dead_modules(sources: Iterable[Source]) -> Iterator[str]:
    """Every module is reached from an entry point, or, in `perdure.testing`, from a test, a bench or an example.

    A dotted name in a string counts as a reference: commands are loaded by name, and so are child processes.
    """
    sources = list(sources)
    modules = {source.module: source for source in sources if source.in_package}
    outside = set().union(*(_references(source) for source in sources if not source.in_package))
    reached: set[str] = set()
    waiting = [*ENTRY_POINTS, *(name for name in outside if name.startswith("perdure.testing"))]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in modules:
            continue
        reached.add(name)
        parent, _, _ = name.rpartition(".")
        waiting += [parent, *_references(modules[name])]
    for name, source in sorted(modules.items()):
        if name not in reached:
            yield f"{source.path}:1: nothing reaches this module"


def _references(source: Source) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("perdure."):
            found.add(node.value.partition(":")[0])
    return found


def test_places(sources: Iterable[Source]) -> Iterator[str]:
    """A test lies in the folder of the room it tests."""
    sources = list(sources)
    rooms = {source.path.split("/")[2] for source in sources if source.in_package and source.path.count("/") > 2}
    for source in sources:
        parts = source.path.split("/")
        is_test = parts[0] == "tests" and parts[-1].startswith("test_")
        if is_test and (len(parts) < 3 or parts[1] not in rooms | TESTS_ACROSS_ROOMS):
            yield f"{source.path}:1: mirrors no room of the source"


def texts(files: Iterable[tuple[str, str]]) -> Iterator[str]:
    """No file names a place on somebody's machine or a package registry."""
    for path, text in files:
        for number, line in enumerate(text.splitlines(), 1):
            if found := MACHINE_PATH.search(line):
                yield f"{path}:{number}: a path of one machine: {found[0]}"
            if found := REGISTRY.search(line):
                yield f"{path}:{number}: a package registry: {found[0]}"


CHECKS: tuple[Callable[[Iterable[Source]], Iterator[str]], ...] = (
    sizes, public_methods, imports, names, docstrings, unfinished, dead_modules, test_places,
)  # fmt: skip
