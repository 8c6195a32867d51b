"""How many lost workers a task outlives, as the scheduler has it."""

from __future__ import annotations


def set_allowed_failures(dask_scheduler, value):
    """Set it on the scheduler, and return what it was: a cluster that is kept gets it back."""
    before = dask_scheduler.allowed_failures
    dask_scheduler.allowed_failures = value
    return before
