"""Rules about what tasks do, by their call stacks."""

from __future__ import annotations

from collections.abc import Collection

from benchkit.analysis.insight.blame import COMPUTING
from benchkit.analysis.insight.findings import Case, Finding, rule
from benchkit.formatting import format_quantity

#: Smallest share of the duration: twice `WORTH_SHARE`, because a change rarely saves all of it.
MIN_SHARE_OF_RUN = 0.2
#: Parts of files, and beginnings of functions in them, that wait for a lock.
LOCKS = (
    ("distributed/semaphore.py", "acquire"),
    ("distributed/lock.py", "acquire"),
    ("distributed/event.py", "wait"),
    ("dask/utils.py", "acquire"),
    ("dask/utils.py", "__enter__"),
)
#: The same of functions that call Python code for each row or element.
LOOPS = (
    ("pandas/core/apply.py", "apply_standard"),
    ("pandas/core/strings/object_array.py", "_str_map"),
    ("pandas/core/algorithms.py", "map_array"),
    ("pandas/core/frame.py", "iterrows"),
    ("pandas/core/frame.py", "itertuples"),
    ("numpy/lib/_function_base_impl.py", "_vectorize_call"),
    ("numpy/lib/function_base.py", "_vectorize_call"),
    ("numpy/lib/_shape_base_impl.py", "apply_along_axis"),
)
#: The same of functions that read stored data.
READERS = (
    ("dask/dataframe/io/parquet/", "read_partition"),
    ("zarr/core/array.py", "get_"),
    ("zarr/core.py", "get_"),
    ("h5py/_hl/dataset.py", "__getitem__"),
    ("xarray/backends/", "_getitem"),
    ("pandas/io/parsers/readers.py", "_read"),
)


@rule(*COMPUTING)
def lock(case: Case) -> Finding | None:
    """Find tasks that wait for each other inside: for a lock, a semaphore or an event."""
    # Without the waits, other tasks would have computed.
    return _in_functions(
        case,
        LOCKS,
        what="tasks wait for a lock while they occupy a thread",
        evidence="in calls that wait for a lock or semaphore",
        change="hold the lock for what needs it only; to limit how many run, use a resource "
        "(resources=) in place of a lock",
    )


@rule(*COMPUTING)
def python_loop(case: Case) -> Finding | None:
    """Find Python code that is called for each row or element."""
    return _in_functions(
        case,
        LOOPS,
        what="tasks call Python code for each row or element",
        evidence="in such calls",
        unknown="what remains of them depends on the code",
        change="operations on whole columns or arrays in place of apply, vectorize and map; "
        "categories or Arrow strings in place of Python objects",
    )


@rule(*COMPUTING)
def reading(case: Case) -> Finding | None:
    """Find tasks that mostly read stored data."""
    return _in_functions(
        case,
        READERS,
        what="tasks mostly read stored data",
        evidence="in functions that read",
        unknown="how much of it is needed is not known",
        change="read only the columns and rows that are used, with chunks that are multiples of "
        "those in the file",
    )


def _in_functions(
    case: Case,
    names: Collection[tuple[str, str]],
    *,
    what: str,
    evidence: str,
    change: str,
    unknown: str = "",
) -> Finding | None:
    """Return a finding of the seconds that tasks spend in functions, if they are many."""
    waits = case.in_functions(names)
    seconds = min(float(waits.sum()) / case.n_threads, case.blamed(*COMPUTING))
    if seconds < MIN_SHARE_OF_RUN * case.duration:
        return None
    group = str(waits.index[0])
    text = f"{format_quantity(float(waits.sum()), 's')} of thread-seconds {evidence}, most in tasks"
    return Finding(
        what=what,
        seconds=seconds,
        evidence=f"{text} of {group}{unknown and f'; {unknown}'}",
        change=change,
        group=group,
    )
