"""Telling a task that a submission was settled."""

from typing import Final

from perdure.agent.submissions import Settled, settled_of
from perdure.base.ids import TaskId
from perdure.tasks.signals import Signal
from perdure.tasks.transaction import TaskTransaction

SubmissionSettled: Final[Signal[Settled]] = Signal("perdure.submission_settled", schema=Settled)
"""Delivered to the task that a submission names as `notify=(task_id, key)`, in the commit that settles it."""


async def notify_settled(tx: TaskTransaction) -> None:
    """The commit rule: whatever this transaction settles is told to whom it is to be told. Never fails the commit: a
    task that has ended, or a key that is taken, gets nothing."""
    for submission in list(tx.changes.submissions.values()):
        if submission.notify_task is not None and submission.notify_key is not None:
            settled = settled_of(submission)
            if settled is not None:
                await tx.signal(TaskId(submission.notify_task), SubmissionSettled, submission.notify_key, settled)
