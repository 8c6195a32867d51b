"""Number of workers that may be lost during a task before the task fails."""

from __future__ import annotations


def set_allowed_failures(dask_scheduler, value):
    """Set the number on the scheduler and return the old one, which must be restored."""
    before = dask_scheduler.allowed_failures
    dask_scheduler.allowed_failures = value
    return before
