"""Find tasks that use more processors than threads, such as by BLAS."""

from __future__ import annotations

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Processor seconds / seconds of computing.
MANY = 1.5


def find(case: Case) -> Finding | None:
    """Return the finding of this rule.

    Parameters
    ----------
    case : Case
        The run.

    Returns
    -------
    Finding or None
        None: nothing found.
    """
    computing, cpu = case.metric("compute_time"), case.metric("cpu_time")
    if not computing or cpu < MANY * computing or cpu < MANY * 0.5 * case.n_threads * case.duration:
        return None
    return Finding(
        what="tasks start threads of their own",
        seconds=0.1 * case.duration,
        evidence=f"workers used {format_quantity(cpu, 's')} of processor time in "
        f"{format_quantity(computing, 's')} of computing",
        change="OMP_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1 and MKL_NUM_THREADS=1 on the workers",
        settings={"variables.OMP_NUM_THREADS": "1", "variables.OPENBLAS_NUM_THREADS": "1"},
    )
