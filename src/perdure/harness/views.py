"""Everything that can be watched of a session. Loaded when somebody first watches."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from perdure.base.ids import ConversationId
from perdure.harness.derive import derive
from perdure.harness.event_stream import EventStream
from perdure.harness.events import Snapshot
from perdure.harness.feed import Feeds, ViewWatch
from perdure.harness.task_graph import TaskGraphSource
from perdure.harness.view import ConversationSource
from perdure.session.session import Session
from perdure.session.watch import Watch
from perdure.tasks.transaction import TaskTransaction


class EventWatch(ViewWatch):
    """A consumer of every commit that concerns a conversation, also of those that only settle a submission."""

    every_commit = True


class Views:
    """The conversation views, the task graph and the events of a session."""

    def __init__(self, session: Session[TaskTransaction]) -> None:
        self._session = session
        self._feeds = Feeds(session)

    def conversation(self, id: ConversationId, after: str | None) -> AbstractAsyncContextManager[Watch]:
        """See `Conversation.watch`."""
        return self._feeds.watching(lambda: ConversationSource(id), ViewWatch, after)

    def tasks(self, after: str | None) -> AbstractAsyncContextManager[Watch]:
        """See `Harness.watch_tasks`."""
        return self._feeds.watching(lambda: TaskGraphSource(self._session), ViewWatch, after)

    @contextlib.asynccontextmanager
    async def events(self, id: ConversationId, after: str | None) -> AsyncIterator[EventStream]:
        """See `Conversation.events`."""
        async with self._feeds.watching(lambda: ConversationSource(id), EventWatch, after) as watch:
            first = [] if watch.resumed else [Snapshot(watch.since, watch.value, watch.cursor)]
            yield EventStream(watch, first, derive)
