"""Rules about what tasks do, by their call stacks."""

from __future__ import annotations

from benchkit.analysis.insight.blame import COMPUTING
from benchkit.analysis.insight.findings import Case, Finding, rule
from benchkit.formatting import format_quantity

#: Share of the duration. Below it, a change is not worth the effort.
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
    waits = case.in_functions(LOCKS)
    # Without the waits, other tasks would have computed.
    seconds = min(float(waits.sum()) / case.n_threads, case.blamed(*COMPUTING))
    if seconds < MIN_SHARE_OF_RUN * case.duration:
        return None
    return Finding(
        what="tasks wait for a lock while they occupy a thread",
        seconds=seconds,
        evidence=f"{format_quantity(float(waits.sum()), 's')} of thread-seconds in calls that wait "
        f"for a lock or semaphore, most in tasks of {waits.index[0]}",
        change="hold the lock for what needs it only; to limit how many run, use a resource "
        "(resources=) in place of a lock",
        group=str(waits.index[0]),
    )


@rule(*COMPUTING)
def python_loop(case: Case) -> Finding | None:
    """Find Python code that is called for each row or element."""
    loops = case.in_functions(LOOPS)
    seconds = min(float(loops.sum()) / case.n_threads, case.blamed(*COMPUTING))
    if seconds < MIN_SHARE_OF_RUN * case.duration:
        return None
    return Finding(
        what="tasks call Python code for each row or element",
        seconds=seconds,
        evidence=f"{format_quantity(float(loops.sum()), 's')} in such calls, most "
        f"in tasks of {loops.index[0]}; what remains of them depends on the code",
        change="operations on whole columns or arrays in place of apply, vectorize and map; "
        "categories or Arrow strings in place of Python objects",
        group=str(loops.index[0]),
    )


@rule(*COMPUTING)
def reading(case: Case) -> Finding | None:
    """Find tasks that mostly read stored data."""
    reads = case.in_functions(READERS)
    seconds = min(float(reads.sum()) / case.n_threads, case.blamed(*COMPUTING))
    if seconds < MIN_SHARE_OF_RUN * case.duration:
        return None
    return Finding(
        what="tasks mostly read stored data",
        seconds=seconds,
        evidence=f"{format_quantity(float(reads.sum()), 's')} of thread-seconds, most in tasks of "
        f"{reads.index[0]}; how much of it is needed is not known",
        change="read only the columns and rows that are used, with chunks that are multiples of "
        "those in the file",
        group=str(reads.index[0]),
    )
