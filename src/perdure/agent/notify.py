"""Telling a task that a submission was settled."""

from perdure.agent.submissions import settled_of
from perdure.base.ids import TaskId
from perdure.extensions.settled import SubmissionSettled
from perdure.tasks.transaction import TaskTransaction


async def notify_settled(tx: TaskTransaction) -> None:
    """The commit rule: whatever this transaction settles is told to whom it is to be told. Never fails the commit: a
    task that has ended, or a key that is taken, gets nothing."""
    for submission in list(tx.changes.submissions.values()):
        if submission.notify_task is not None and submission.notify_key is not None:
            settled = settled_of(submission)
            if settled is not None:
                await tx.signal(TaskId(submission.notify_task), SubmissionSettled, submission.notify_key, settled)
