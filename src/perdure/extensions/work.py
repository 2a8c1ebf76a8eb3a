"""Tasks of an extension's own, for those who import `perdure.extensions` alone."""

from perdure.tasks.decisions import Next
from perdure.tasks.definition import phase, task
from perdure.tasks.runtime import TaskRun
from perdure.tasks.signals import Signal

__all__ = ["Next", "Signal", "TaskRun", "phase", "task"]
