"""What all parts of a transaction share: whether it is open, its ids, and what it has written so far."""

from typing import Any

from perdure.base.errors import InvalidValue, InvocationEnded
from perdure.session.changes import Changes
from perdure.session.store import Store


class Block:
    """The state of one block on the line."""

    seq: int
    """The number its commit will have."""

    def __init__(self, session: Any, store: Store, *, progress: bool = False) -> None:
        self._session = session
        self._store = store
        self._progress = progress
        self._open = False
        self._next_id = 0
        self.changes = Changes()

    @property
    def progress(self) -> bool:
        """Whether the block may hold nothing but patches to live documents."""
        return self._progress

    @property
    def next_id(self) -> int:
        """The first id that is still free."""
        return self._next_id

    @property
    def is_open(self) -> bool:
        """Whether its block has begun and not ended."""
        return self._open

    def check_open(self) -> None:
        """Raise unless the block is open."""
        if not self._open:
            raise InvocationEnded("the transaction's block has ended", hint="open a new transaction")

    def mint(self) -> int:
        """A fresh id. Given back if the block is rolled back."""
        if not self._open:
            self.check_open()
        if self._progress:
            raise InvalidValue("a progress commit holds nothing but patches to live documents")
        self._next_id += 1
        return self._next_id - 1
