"""Everything that can be watched of a session. Loaded when somebody first watches."""

from perdure.base.ids import ConversationId
from perdure.harness.derive import derive
from perdure.harness.event_stream import EventStream
from perdure.harness.events import Snapshot
from perdure.harness.feed import Feeds, ViewWatch, Watching
from perdure.harness.task_graph import TaskGraphSource
from perdure.harness.view import ConversationSource
from perdure.session.session import Session
from perdure.tasks.transaction import TaskTransaction


class EventWatch(ViewWatch):
    """A consumer of every commit that concerns a conversation, also of those that only settle a submission."""

    every_commit = True


class Views:
    """The conversation views, the task graph and the events of a session."""

    def __init__(self, session: Session[TaskTransaction]) -> None:
        self._session = session
        self._feeds = Feeds(session)

    def conversation(self, id: ConversationId, after: str | None) -> Watching[ViewWatch]:
        """See `Conversation.watch`."""
        return Watching(lambda: self._feeds.attach(ConversationSource(id), ViewWatch, after))

    def tasks(self, after: str | None) -> Watching[ViewWatch]:
        """See `Harness.watch_tasks`."""
        return Watching(lambda: self._feeds.attach(TaskGraphSource(self._session), ViewWatch, after))

    def events(self, id: ConversationId, after: str | None) -> Watching[EventStream]:
        """See `Conversation.events`."""
        return Watching(lambda: self._begin_events(id, after))

    async def _begin_events(self, id: ConversationId, after: str | None) -> EventStream:
        watch = await self._feeds.attach(ConversationSource(id), EventWatch, after)
        first = [] if watch.resumed else [Snapshot(watch.since, watch.value, watch.cursor)]
        return EventStream(watch, first, derive)
