"""Find tasks that use more processors than threads, such as by BLAS."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.analysis.insight.full_memory import filling_seconds
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Processor seconds / seconds of computing.
MANY = 1.5
#: Processor seconds outside of the threads of tasks / seconds of computing.
OTHERS = 0.4
#: Processor seconds that a worker needs per task besides it: messages, transfers, shuffles. In 318
#: runs of 36 workloads 3 ms (median) and 7.5 ms (nine of ten) with all that a process does.
PER_TASK_S = 0.005


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
    computing, cpu = case.metric("compute_time"), case.metric("cpu_time")
    half = 0.5 * case.n_threads * case.duration
    # A worker compresses and writes spilled results outside of the threads of tasks.
    spilling = case.metric("disk_write_time") + case.metric("disk_read_time")
    overhead = PER_TASK_S * case.metric("n_tasks") + spilling + filling_seconds(case)
    many = cpu - overhead >= MANY * max(computing, half)
    # On a machine with other processes, all threads of a task together get less than a processor.
    others = computing >= half and case.other_threads - overhead >= OTHERS * computing
    if not computing or not (many or others):
        return None
    return Finding(
        what="tasks start threads of their own",
        seconds=0.1 * case.duration,
        evidence=f"workers used {format_quantity(cpu, 's')} of processor time in "
        f"{format_quantity(computing, 's')} of computing, "
        f"{format_quantity(case.other_threads, 's')} of it outside of the threads of tasks",
        change="OMP_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1 and MKL_NUM_THREADS=1 on the workers",
        settings={"variables.OMP_NUM_THREADS": "1", "variables.OPENBLAS_NUM_THREADS": "1"},
    )
