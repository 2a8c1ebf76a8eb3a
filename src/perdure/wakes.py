"""Why parked work runs again: what `run.wake` and a tool's `ctx.wake` may be."""

from perdure.tasks.wakes import Expired, Signalled, Tasks, Time, WakeReason

__all__ = ["Expired", "Signalled", "Tasks", "Time", "WakeReason"]
