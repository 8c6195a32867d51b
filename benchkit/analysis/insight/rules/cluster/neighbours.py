"""Find other processes that take the processors of the workers."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding

__all__ = ["find"]


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    cores = case.other_cores
    if not cores:
        return None
    # A thread that computes waits at most as long as each of the others computes meanwhile; a task
    # that sleeps loses nothing.
    seconds = case.duration * min(0.5, cores / (cores + case.n_threads))
    computed, waited = case.task_seconds("thread-cpu"), case.task_seconds("thread-noncpu")
    if computed is not None and waited is not None:
        seconds = min(seconds, cores * computed / case.n_threads, waited / case.n_threads)
    return Finding(
        what="other processes use the processors of the workers",
        seconds=seconds,
        evidence=f"processes other than workers, scheduler and client used {cores:g} cores of "
        "the workers' machines",
        change="stop them, or measure on a machine of its own",
    )
