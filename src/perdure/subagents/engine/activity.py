"""What a host's news say about time: what counts towards a timeout, and since when nothing has moved. Pure."""

from perdure.subagents.engine.errors import meaning_of
from perdure.subagents.protocol import News

ASK = "ask"
"""The tool whose time is its answerer's."""


class Activity:
    """One execution, by the seconds of a clock that never goes back.

    Time is active while a model request or a call of a tool is under way. A question does not count, nor does what is
    parked, nor the pause before another attempt.
    """

    def __init__(self, now: float, active: float = 0.0) -> None:
        self._before = active
        self._since: float | None = None
        self._open: dict[str, tuple[str, float]] = {}
        """Requests and calls under way: the tool's name, and since when."""
        self.asking = False
        self.parked: float | None = None
        """Since when nothing runs and nothing will without a delivery."""
        self.heard = now
        """When something was heard last."""
        self.progress = now
        """When something other than another attempt was heard last."""
        self.retrying: str | None = None
        """The error for which the request is tried again; None where it got through."""
        self.refusals: list[str] = []
        """Errors of a used-up usage window, one after the other."""
        self.answered = 0
        """How many requests were answered well."""

    def hear(self, news: News, now: float) -> None:
        """Take a line up."""
        self.heard = now
        if news.what != "retry" and not (news.what == "request" and self.retrying) and not _failed(news):
            self.progress = now
        match news.what:
            case "request":
                self._begins("request", "", now)
            case "answer":
                self._ends("request", now)
                self._answer(news)
            case "retry":
                self.retrying = news.error or self.retrying or "an error"
            case "progress":
                self.retrying = None
            case "tool":
                self.retrying = None
                if news.name != ASK:
                    self._begins(news.call, news.name, now)
            case "tool-end":
                self._ends(news.call, now)
            case "question":
                self.asking = True
            case "question-closed":
                self.asking = False
            case "parked":
                self.parked = now
                for one in list(self._open):
                    self._ends(one, now)
            case "active":
                self.parked = None

    def _answer(self, news: News) -> None:
        if not _failed(news):
            self.answered += 1
            self.retrying, self.refusals = None, []
        elif meaning_of(news.error, news.code) == "exhausted":
            self.refusals.append(news.error)
        else:
            self.refusals = []

    def _begins(self, what: str, name: str, now: float) -> None:
        if not self._open:
            self._since = now
        self._open[what] = (name, now)

    def _ends(self, what: str, now: float) -> None:
        if self._open.pop(what, None) is not None and not self._open and self._since is not None:
            self._before += now - self._since
            self._since = None

    def moved(self, now: float) -> None:
        """There is another sign of life."""
        self.heard = now

    @property
    def counts(self) -> bool:
        """Whether time is active now."""
        return self._since is not None

    def active(self, now: float) -> float:
        """Seconds so far. They never get fewer."""
        return self._before + (now - self._since if self._since is not None else 0.0)

    def command(self, now: float) -> str | None:
        """The tool that has been running longest, and how long."""
        running = [(since, name) for name, since in self._open.values() if name]
        if not running:
            return None
        since, name = min(running)
        return f"{name} for {_span(now - since)}"

    def silent_since(self) -> float | None:
        """Since when nothing was heard; None while that means nothing, since somebody else is asked."""
        return None if self.asking or self.parked is not None else self.heard

    def stuck_since(self) -> float | None:
        """Since when the provider gives nothing but errors; None while it is not so."""
        return None if self.retrying is None or self.silent_since() is None else self.progress


def _failed(news: News) -> bool:
    return news.what == "answer" and news.stop == "error"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
