"""One thread for what may wait: the flush of a commit, a lock that another process holds, a checkpoint."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any


class Worker:
    """Runs jobs one after the other in a thread of its own, started with the first job."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run a job in the thread, then call `done` with its result on the event loop. The job must not raise."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            result = job()
            try:
                loop.call_soon_threadsafe(done, result)
            except RuntimeError:
                return  # the loop is gone, and with it everybody who could ask

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(work)

    def stop(self) -> None:
        """End the thread after the jobs that it has. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
