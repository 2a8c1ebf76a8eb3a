"""Where tasks and submissions stand, and by what they are found. Of what has ended only the place is in memory."""

from bisect import bisect_left, insort
from collections.abc import Callable

import msgspec

from perdure.base.errors import StorageCorrupt
from perdure.storage.jsonl.content import StoredSubmission, StoredTask, decoded, live_task
from perdure.storage.jsonl.sorted import Groups, Ids, Places
from perdure.storage.records import LiveTask

Fetch = Callable[[int, int], bytes]


class TaskIndex:
    """Tasks."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.places = Places()
        self.inputs = Places()
        """Where the input stands of a task whose newest line leaves it out."""
        self.live: dict[int, LiveTask] = {}
        self.live_ids = Ids()
        self.live_in: Groups[int] = Groups()
        self.all_in: Groups[int] = Groups()
        self.owned: Groups[int] = Groups()
        self.waiting: Groups[int] = Groups()
        self.deadlines: list[tuple[int, int]] = []
        """Time and id, earliest first."""

    @property
    def bytes(self) -> int:
        """Bytes of the file that they take."""
        return self.places.bytes + self.inputs.bytes

    def take(self, stored: StoredTask, offset: int, length: int) -> None:
        """A task as it is from now on."""
        old = self.known(stored.id)
        new = live_task(stored)
        if stored.input is not msgspec.UNSET:
            self.inputs.forget(stored.id)
        elif stored.id not in self.inputs:
            place = self.places.find(stored.id)
            if place is None:
                raise StorageCorrupt(f"task {stored.id} goes on and never began")
            self.inputs.put(stored.id, *place)
        self.places.put(stored.id, offset, length)
        if old is not None:
            if (old.conversation, old.owner) != (new.conversation, new.owner):
                self._leave_groups(old)
                self._join_groups(new)
            self._unlist(old)
        else:
            self._join_groups(new)
        self._list(new)

    def known(self, id: int) -> LiveTask | None:
        """The light record of any task."""
        found = self.live.get(id)
        if found is None and (place := self.places.find(id)) is not None:
            found = live_task(decoded(self._fetch(*place), StoredTask))
        return found

    def _join_groups(self, task: LiveTask) -> None:
        self.all_in.add(task.conversation, task.id)
        if task.owner is not None:
            self.owned.add(task.owner, task.id)

    def _leave_groups(self, task: LiveTask) -> None:
        self.all_in.remove(task.conversation, task.id)
        if task.owner is not None:
            self.owned.remove(task.owner, task.id)

    def _list(self, task: LiveTask) -> None:
        if task.status != "terminal":
            self.live[task.id] = task
            self.live_ids.add(task.id)
            self.live_in.add(task.conversation, task.id)
        for target in set(task.on):
            self.waiting.add(target, task.id)
        if task.deadline is not None:
            insort(self.deadlines, (task.deadline, task.id))

    def _unlist(self, task: LiveTask) -> None:
        if task.status != "terminal":
            del self.live[task.id]
            self.live_ids.remove(task.id)
            self.live_in.remove(task.conversation, task.id)
        for target in set(task.on):
            self.waiting.remove(target, task.id)
        if task.deadline is not None:
            del self.deadlines[bisect_left(self.deadlines, (task.deadline, task.id))]


class SubmissionIndex:
    """Submissions."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.places = Places()
        self.all_in: Groups[int] = Groups()
        self.live_in: Groups[int] = Groups()
        self.live_ids = Ids()
        self.requests: dict[tuple[int, str], int] = {}
        self._live: dict[int, tuple[int, str | None, bool]] = {}

    def take(self, stored: StoredSubmission, offset: int, length: int) -> None:
        """A submission as it is from now on."""
        old = self.known(stored.id)
        new = _keys(stored)
        self.places.put(stored.id, offset, length)
        if old is not None:
            self._leave(stored.id, old)
        conversation, request, live = new
        self.all_in.add(conversation, stored.id)
        if request is not None:
            self.requests[conversation, request] = stored.id
        if live:
            self._live[stored.id] = new
            self.live_ids.add(stored.id)
            self.live_in.add(conversation, stored.id)

    def known(self, id: int) -> tuple[int, str | None, bool] | None:
        """Conversation, request id and liveness of any submission."""
        found = self._live.get(id)
        if found is None and (place := self.places.find(id)) is not None:
            found = _keys(decoded(self._fetch(*place), StoredSubmission))
        return found

    def _leave(self, id: int, keys: tuple[int, str | None, bool]) -> None:
        conversation, request, live = keys
        self.all_in.remove(conversation, id)
        if request is not None:
            self.requests.pop((conversation, request), None)
        if live:
            del self._live[id]
            self.live_ids.remove(id)
            self.live_in.remove(conversation, id)


def _keys(stored: StoredSubmission) -> tuple[int, str | None, bool]:
    return stored.conversation, stored.request_id, stored.status in ("queued", "placed")
