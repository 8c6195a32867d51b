"""The table of pairs: what a pair says of itself, the list of causes, and the two halves."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

#: Cause -> what the reports say about it. Plain words; no cause is the name of a finding.
CAUSES = {
    "barrier": "the client waits for all tasks of a batch before it submits the next batch",
    "blocked threads": "tasks hold worker threads while they wait for other tasks",
    "client": "the user's code works in the client's process while the workers wait",
    "disk": "more is read or written than needed, or in a slow format",
    "embedded data": "large data travel inside graphs, arguments or functions",
    "few tasks": "fewer tasks than threads: the work is in one partition or file",
    "gather": "data are brought to the client that could stay, or be reduced first",
    "gil": "threads of one process wait for Python's global lock",
    "graph": "the client builds, merges or optimizes a large graph",
    "imbalance": "one worker has the data and the tasks, others have none",
    "lock": "tasks wait for a lock or semaphore of the user",
    "misaligned chunks": "chunks cut across those of the file, so each is read many times",
    "paused": "a worker starts no task because its memory is nearly full",
    "python loop": "a Python loop over rows or cells where an array operation exists",
    "python objects": "values are Python objects: slow to process, to serialize, to move",
    "rechunk": "data are rechunked although the result does not need it",
    "repeated setup": "each task repeats the same preparation, such as loading a model",
    "repeated work": "the same tasks are computed more than once",
    "restricted": "tasks are tied to a worker or a resource while others are idle",
    "serial submit": "the client asks for one result, waits for it, then asks for the next",
    "serialization": "objects are slow to pickle or unpickle",
    "shuffle": "all rows are exchanged although the result does not need it",
    "skew": "one task or partition is much longer than the others and ends last",
    "spill": "workers write data to disk because memory is full",
    "tiny tasks": "tasks are shorter than the overhead of a task",
    "transfer": "data move between workers that could be reduced where they are",
    "workers late": "workers join when most of the tasks have begun",
}

#: The cluster of a pair that names no other.
CLUSTER = {"n_workers": 2, "threads_per_worker": 2, "memory_limit": "2 GiB"}

#: Modules of this package with pairs.
TOPICS = ("client", "graphs", "placement", "frames", "arrays", "files", "memory")


@dataclass(frozen=True)
class Pair:
    """Slow code of a report, and the same job as an expert would write it."""

    id: str
    report: tuple[str, ...]  # Addresses of the reports
    cause: str  # Cause that the report's answers name
    advice: str  # What an expert would say
    wrong: tuple[str, ...]  # Advice that would harm or change nothing
    sick: Callable[[Any], Any]  # Takes a client; returns the answer
    mended: Callable[[Any], Any]
    also: tuple[str, ...] = ()  # Causes that are right too, after or instead of `cause`
    speedup: float = 1.5  # Least duration of the sick form, in durations of the mended form
    sleeping: bool = False  # The work is `time.sleep`: the load of the machine matters little
    prepare: Callable[[], Any] | None = None  # Writes input files, outside of the clock
    cluster: Mapping[str, Any] = field(default_factory=dict)  # Differences to `CLUSTER`
    mended_cluster: Mapping[str, Any] | None = None  # If the mend is another cluster

    def options(self, form: str) -> dict[str, Any]:
        """Return the options of the cluster of a form, ``sick`` or ``mended``."""
        other = self.mended_cluster if form == "mended" else None
        return {**CLUSTER, **(self.cluster if other is None else other)}


#: All pairs of the modules imported so far, by id.
_PAIRS: dict[str, Pair] = {}

_Namespace = TypeVar("_Namespace", bound=type)


def pair(
    *, report: str | tuple[str, ...], wrong: str | tuple[str, ...], **facts: Any
) -> Callable[[_Namespace], _Namespace]:
    """Register the static methods ``sick`` and ``mended`` of a class as a pair."""

    def register(namespace: _Namespace) -> _Namespace:
        reports, harmful = ((text,) if isinstance(text, str) else text for text in (report, wrong))
        new = Pair(
            report=reports,
            wrong=harmful,
            sick=getattr(namespace, "sick"),  # noqa: B009 (mypy: any class has these two)
            mended=getattr(namespace, "mended"),  # noqa: B009
            **facts,
        )
        if new.id in _PAIRS:
            raise ValueError(f"pair {new.id}: the id is taken")
        _PAIRS[new.id] = new
        return namespace

    return register


def all_pairs() -> dict[str, Pair]:
    """Return all pairs by id."""
    for topic in TOPICS:
        importlib.import_module(f"validation.reports.{topic}")
    return dict(sorted(_PAIRS.items()))


#: Drew `WORK` from the 40 pairs whose two forms had been measured on a cluster, sorted by id:
#: `random.Random(SEED).sample(ids, 20)`. Other pairs are spares, not measured yet.
SEED = 41
#: Rules may be tried on these.
WORK = (
    "all-columns-for-one",
    "bag-groupby",
    "batches-of-four",
    "chunks-across-the-file",
    "chunks-of-kilobytes",
    "client-parses-files",
    "delayed-of-a-frame",
    "gather-then-mean",
    "length-after-each-step",
    "longest-last",
    "one-chunk-for-all",
    "pinned-to-one-worker",
    "results-in-order",
    "row-by-row-from-slow-chunks",
    "rows-in-the-client",
    "text-as-objects",
    "threads-wait-for-a-semaphore",
    "ufunc-per-pixel",
    "work-inside-of-a-lock",
    "workers-come-late",
)
#: Scored once, at the end; not to be looked at before.
HELD_OUT = (
    "all-data-to-one-task",
    "apply-over-rows",
    "array-in-each-call",
    "cache-pauses-workers",
    "client-loads-inputs",
    "compute-in-loop",
    "csv-for-each-question",
    "data-on-one-worker",
    "down-and-up-again",
    "futures-keep-results",
    "library-keeps-the-gil",
    "load-in-each-task",
    "model-in-each-task",
    "objects-of-a-few-bytes",
    "one-resource-for-each-task",
    "python-on-threads",
    "rechunk-to-reduce",
    "result-of-each-submit",
    "task-for-each-number",
    "tasks-that-wait-for-tasks",
)
