"""Models of a host that dies: `PERDURE_TEST_DIES` is the number of the commit before which it is killed."""

import os
import signal
from typing import Any

from perdure.storage.sqlite.store import SqliteStorage
from tests.subagents.scripted import Scripted

VARIABLE = "PERDURE_TEST_DIES"


class MortalModels(Scripted):
    """The scripted models; made before the session is opened, so they see all of its commits."""

    def __init__(self) -> None:
        super().__init__()
        if VARIABLE in os.environ:
            die_before(int(os.environ[VARIABLE]))


def die_before(number: int) -> None:
    seen: set[int] = set()

    def counted(name: str) -> None:
        original = getattr(SqliteStorage, name)

        def commit(self: SqliteStorage, batch: Any) -> Any:
            seen.add(batch.seq)
            if len(seen) >= number:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, batch)

        setattr(SqliteStorage, name, commit)

    for name in ("commit", "commit_now", "enqueue"):
        counted(name)
