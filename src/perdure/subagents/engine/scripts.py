"""What a workflow's script says and is told, and the journal by which a later incarnation goes the same way.

A script runs in *stretches*: from its start, or from a result that it was shown, until nothing in it can go on. Within
a stretch `now()` is the moment of its beginning and `random()` comes from its seed, so a script needs nothing from
outside while it runs. Each stretch's proposals are stored in one commit, and a result is shown once that is stored.
"""

from typing import Any, Final, Literal, Protocol

import msgspec

from perdure import Error

Record = list[Any]
SCHEMA: Final = {"call": 3, "refused": 3, "now": 2, "random": 2, "emit": 2, "begin": 1, "shown": 3}
"""How many parts of a record a replay must repeat; what follows them is what it was told then."""


class Begin(msgspec.Struct, kw_only=True, tag="begin"):
    """The first line to an evaluator: run this script from its beginning."""

    source: str
    path: str
    args: Any = None
    inputs: dict[str, str] = {}
    """The declared inputs' texts by name."""
    now: float = 0.0
    seed: int = 0


class Show(msgspec.Struct, kw_only=True, tag="show"):
    """A proposed call has this result: go on until nothing can."""

    key: str
    result: dict[str, Any]
    now: float = 0.0
    seed: int = 0


class Propose(msgspec.Struct, kw_only=True, tag="propose"):
    """`runs.run(key, spec)`. Nobody answers; its result is shown some time."""

    key: Any
    spec: Any


class Used(msgspec.Struct, kw_only=True, tag="used"):
    """The script took the time or a random number: what it got."""

    what: Literal["now", "random"]
    value: float


class Emit(msgspec.Struct, kw_only=True, tag="emit"):
    value: Any


class Log(msgspec.Struct, kw_only=True, tag="log"):
    """A line for the console."""

    level: str
    text: str


class Waiting(msgspec.Struct, kw_only=True, tag="waiting"):
    """Nothing in the script can go on before a result is shown."""


class Returned(msgspec.Struct, kw_only=True, tag="returned"):
    value: Any = None


class Threw(msgspec.Struct, kw_only=True, tag="threw"):
    """The script failed; also for a value that is no JSON."""

    error: str


class Limited(msgspec.Struct, kw_only=True, tag="limited"):
    """It took more time or memory than it may, and was ended."""

    what: str


ToScript = Begin | Show
FromScript = Propose | Used | Emit | Log | Waiting | Returned | Threw | Limited


class EvaluatorGone(Error):
    """The process that ran the script has ended, and not for a limit."""

    code = "evaluator_gone"


class Evaluator(Protocol):
    """One incarnation of a script."""

    async def say(self, line: ToScript) -> None:
        """Raises `EvaluatorGone`."""
        ...

    async def hear(self) -> FromScript:
        """The next line. Raises `EvaluatorGone`."""
        ...

    async def close(self) -> None:
        """End it, whatever it does."""
        ...


class Evaluators(Protocol):
    """Starts evaluators."""

    async def start(self, language: Literal["python", "javascript"], name: str) -> Evaluator:
        """A process that waits for `Begin`. `name` is the workflow's. Raises `Error` where there can be none."""
        ...


class NoEvaluators:
    """Where scripts cannot run."""

    async def start(self, language: Literal["python", "javascript"], name: str) -> Evaluator:
        raise Error(f"{language} scripts cannot run here", hint="no evaluator is installed")


class Mismatch(Exception):
    """The script does not go the way that is recorded."""


class Replay:
    """The records of a script, and how far this incarnation has come in them."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.at = 0
        self.keys: dict[str, int] = {}
        """Keys that this incarnation proposed, with the generation of each."""
        self.shown: set[str] = set()
        self.fresh: list[Record] = []
        """Records of the stretch that are not stored."""

    @property
    def replaying(self) -> bool:
        """Whether it has not come to what is new."""
        return self.at < len(self.records)

    def step(self, record: Record) -> Record:
        """The script did this: it is what is recorded here, or it is new. Returns the record that counts."""
        if not self.replaying:
            self.fresh.append(record)
            return record
        stored = self.records[self.at]
        same = SCHEMA[record[0]]
        kinds = {record[0], "refused" if record[0] == "call" else record[0]}
        if stored[0] not in kinds or stored[1:same] != record[1:same]:
            raise Mismatch(f"at step {self.at + 1} it {said(record)}, where it {said(stored)} before")
        self.at += 1
        return stored

    def proposes(self, key: str, fingerprint: str) -> Record:
        """A call is proposed. Raises `Mismatch`, also for a key that was used."""
        if key in self.keys:
            raise Mismatch(f"the key {key!r:.200} is proposed a second time")
        record = self.step(["call", key, fingerprint, 0])
        self.keys[key] = record[3]
        return record

    def next_shown(self) -> Record | None:
        """What the script was shown here; None at the frontier. Raises `Mismatch` where it did something else."""
        if not self.replaying:
            return None
        stored = self.records[self.at]
        if stored[0] != "shown":
            raise Mismatch(f"at step {self.at + 1} it waits, where it {said(stored)} before")
        self.at += 1
        self.shown.add(stored[1])
        return stored

    def ends(self) -> None:
        """The script ended. Raises `Mismatch` where more is recorded."""
        if self.replaying:
            raise Mismatch(f"at step {self.at + 1} it ends, where it {said(self.records[self.at])} before")

    def stored(self, fresh: list[Record]) -> None:
        """These were stored."""
        self.records.extend(fresh)
        self.at = len(self.records)
        self.fresh = []


def said(record: Record) -> str:
    """A record in words."""
    kind = record[0]
    if kind in ("call", "refused"):
        return f"proposed {record[1]!r:.200}" + ("" if len(record[2]) > 64 else f" ({record[2][:8]})")
    if kind == "shown":
        return f"was shown the result of {record[1]!r:.200}"
    return {"now": "took the time", "random": "took a random number", "emit": "emitted a value"}.get(kind, str(kind))
