"""What a task is told of a submission that it waits for."""

from typing import Final, Literal

import msgspec

from perdure.base.ids import EntryId
from perdure.tasks.signals import Signal


class Settled(msgspec.Struct, frozen=True):
    """How a submission ended. `answer` is the entry of the answer; `reason` a stable word, `detail` says more."""

    status: Literal["done", "unanswered"]
    answer: EntryId | None = None
    reason: str | None = None
    detail: str | None = None


SubmissionSettled: Final[Signal[Settled]] = Signal("perdure.submission_settled", schema=Settled)
"""Delivered to the task that a submission names as `notify=(task_id, key)`, in the commit that settles it."""
