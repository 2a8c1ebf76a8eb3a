"""Definitions of documents: typed JSON state of an application that shares commits with the transcript."""

from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeVar, overload

from perdure.base import jsonvalue
from perdure.base.errors import InvalidDefinition, InvalidValue, TooNew
from perdure.base.ids import SESSION_SCOPE
from perdure.base.jsonvalue import Json
from perdure.base.typed import OURS, Codec, codec
from perdure.storage.records import Scope

T_co = TypeVar("T_co", covariant=True)
"""Covariant, so that what is read may go wherever a wider type is wanted."""

DELTAS_PER_BASE: Final = 64
"""Deltas after which a whole value is stored again, so that reading stays short."""
SMALL_VALUE_BYTES: Final = 1024
"""A document of latest history up to this size is stored whole every time: one row, no history to fold."""

CheckpointWhen = Callable[[Json, list[dict[str, Any]], int], bool]
Fork = Literal["as_of", "current", "initial"]
History = Literal["latest", "rewindable"]
Migrate = Callable[[Any, int], Any]


def _default_checkpoint(value: Json, ops: list[dict[str, Any]], deltas: int) -> bool:
    return deltas >= DELTAS_PER_BASE


class Document(Generic[T_co]):
    """A kind of document. What is read as is of the type that it is declared with.

    `scope`: one per session, per conversation, or per task (a task's retire when it ends). `history="rewindable"`
    keeps every value addressable. `fork` says what a fork of the conversation begins with: the value `as_of` the
    fork entry (needs rewindable), the `current` value, or the `initial` one. `migrate(value, from_version)` runs at
    access; the next write stores the result. With `family=True` many members live side by side, each under a key.
    `checked=False` is for built-in documents whose one writer is known: their patches are not validated again.
    """

    @overload
    def __init__(
        self,
        kind: str,
        type: type[T_co],
        version: int = ...,
        *,
        scope: Scope = ...,
        history: History = ...,
        fork: Fork = ...,
        initial: Callable[[], T_co] | None = ...,
        migrate: Migrate | None = ...,
        checkpoint_when: CheckpointWhen = ...,
        family: bool = ...,
        checked: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "Document[Any]",
        kind: str,
        type: Any,
        version: int = ...,
        *,
        scope: Scope = ...,
        history: History = ...,
        fork: Fork = ...,
        initial: Callable[[], Any] | None = ...,
        migrate: Migrate | None = ...,
        checkpoint_when: CheckpointWhen = ...,
        family: bool = ...,
        checked: bool = ...,
    ) -> None: ...
    def __init__(
        self,
        kind: str,
        type: Any,
        version: int = 1,
        *,
        scope: Scope = "conversation",
        history: History = "latest",
        fork: Fork = "initial",
        initial: Callable[[], Any] | None = None,
        migrate: Migrate | None = None,
        checkpoint_when: CheckpointWhen = _default_checkpoint,
        family: bool = False,
        checked: bool = True,
    ) -> None:
        self.kind: Final = kind
        self.type: Final = type
        self.version: Final = version
        self.scope: Final[Scope] = scope
        self.history: Final[History] = history
        self.fork: Final[Fork] = fork
        self.initial: Final = initial
        self.migrate: Final = migrate
        self.checkpoint_when: Final = checkpoint_when
        self.family: Final = family
        self.checked: Final = checked
        self._check()
        self.codec: Final[Codec[T_co]] = codec(type, where=f"document {kind}", now=not kind.startswith(OURS))

    def __repr__(self) -> str:
        return f"Document({self.kind!r})"

    def _check(self) -> None:
        if not self.kind or "/" in self.kind:
            raise InvalidDefinition(f"a document kind must be a name without '/': {self.kind!r}")
        if self.version < 1:
            raise InvalidDefinition(f"document {self.kind}: versions begin at 1")
        if self.fork == "as_of" and self.history != "rewindable":
            raise InvalidDefinition(
                f'document {self.kind}: fork="as_of" needs history="rewindable"',
                hint="without kept history the value at the fork entry is gone",
            )
        if self.scope != "conversation" and self.fork != "initial":
            raise InvalidDefinition(f"document {self.kind}: only conversation documents say what a fork begins with")

    @property
    def rewindable(self) -> bool:
        return self.history == "rewindable"

    def scope_id(self, scope_id: int | None) -> int:
        """The scope id to store under; session documents take none."""
        if self.scope == "session":
            if scope_id not in (None, SESSION_SCOPE):
                raise InvalidValue(f"document {self.kind} belongs to the session and takes no id")
            return SESSION_SCOPE
        if scope_id is None:
            raise InvalidValue(f"document {self.kind} belongs to a {self.scope}: its id is missing")
        return scope_id

    def first_value(self, seed: Any = None) -> Json:
        """The value it begins with, as JSON."""
        if seed is not None:
            return self.codec.to_json(seed)
        if self.initial is None:
            raise InvalidDefinition(
                f"document {self.kind} has no initial value", hint="give initial=, or create it with tx.set"
            )
        return self.codec.to_json(self.initial())

    def current(self, value: Json, version: int) -> Json:
        """A stored value as of this code's version: migrated in memory if older, refused if newer."""
        if version == self.version:
            return value
        if version > self.version:
            raise TooNew(
                f"document {self.kind} was stored by version {version}, this code has {self.version}",
                hint="update the program; the stored value is untouched",
            )
        if self.migrate is None:
            raise InvalidDefinition(f"document {self.kind}: stored version {version} needs a migrate function")
        return self.codec.to_json(self.migrate(value, version))

    def check_key(self, key: str | None) -> None:
        if self.family and not key:
            raise InvalidValue(f"document family {self.kind}: the member's key is missing")
        if self.family and not (isinstance(key, str) and jsonvalue.is_strict(key)):
            raise InvalidValue(f"document family {self.kind}: a member's key is well-formed text, not {key!r}")
        if not self.family and key is not None:
            raise InvalidValue(f"document {self.kind} is no family and takes no key")


def document_family(kind: str, type_: Any, **options: Any) -> "Document[Any]":
    """A kind of document with many members, each under a key, created with a seed."""
    return Document(kind, type_, family=True, **options)
