"""Where tasks and submissions stand, and by what they are found. Of what has ended only the place is in memory."""

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final

import msgspec

from perdure.base.errors import StorageCorrupt
from perdure.storage.jsonl.content import SubmissionKeys, TaskKeys, live_task
from perdure.storage.jsonl.sorted import Groups, Ids, Places
from perdure.storage.records import LiveTask

Fetch = Callable[[int, int], bytes]

_task_keys: Final = msgspec.json.Decoder(TaskKeys).decode
_submission_keys: Final = msgspec.json.Decoder(SubmissionKeys).decode


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

    def take(self, raw: msgspec.Raw, offset: int, length: int) -> None:
        """A task as it is from now on."""
        stored = _task_keys(raw)
        new = live_task(stored)
        id = new.id
        place = self.places.find(id)
        if place is None:
            if stored.input is msgspec.UNSET:
                raise StorageCorrupt(f"task {id} goes on and never began")
            self._join_groups(new)
        else:
            old = self.known(id)
            assert old is not None
            if stored.input is not msgspec.UNSET:
                self.inputs.forget(id)
            elif id not in self.inputs:
                self.inputs.put(id, *place)
            if (old.conversation, old.owner) != (new.conversation, new.owner):
                self._leave_groups(old)
                self._join_groups(new)
            self._unlist(old)
        self.places.put(id, offset, length)
        self._list(new)

    def known(self, id: int) -> LiveTask | None:
        """The light record of any task."""
        found = self.live.get(id)
        if found is None and (place := self.places.find(id)) is not None:
            found = live_task(_task_keys(self._fetch(*place)))
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

    def take(self, raw: msgspec.Raw, offset: int, length: int) -> None:
        """A submission as it is from now on."""
        stored = _submission_keys(raw)
        id = stored.id
        old = self.known(id)
        new = _keys(stored)
        self.places.put(id, offset, length)
        conversation, request, live = new
        if old is None:
            self.all_in.add(conversation, id)
        else:
            self._leave(id, old, new)
        if request is not None:
            self.requests[conversation, request] = id
        if live:
            self._live[id] = new
            self.live_ids.add(id)
            self.live_in.add(conversation, id)

    def known(self, id: int) -> tuple[int, str | None, bool] | None:
        """Conversation, request id and liveness of any submission."""
        found = self._live.get(id)
        if found is None and (place := self.places.find(id)) is not None:
            found = _keys(_submission_keys(self._fetch(*place)))
        return found

    def _leave(self, id: int, old: tuple[int, str | None, bool], new: tuple[int, str | None, bool]) -> None:
        conversation, request, live = old
        if conversation != new[0]:
            self.all_in.remove(conversation, id)
            self.all_in.add(new[0], id)
        if request is not None and old[:2] != new[:2]:
            self.requests.pop((conversation, request), None)
        if live:
            del self._live[id]
            self.live_ids.remove(id)
            self.live_in.remove(conversation, id)


def _keys(stored: SubmissionKeys) -> tuple[int, str | None, bool]:
    return stored.conversation, stored.request_id, stored.status in ("queued", "placed")
