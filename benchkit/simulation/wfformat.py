"""Read the task graph of another system from a file in WfFormat, the format of WfCommons.

A file says what ran and which files were passed on, not how Dask would have been asked for it: all
tasks are submitted at once, and a task passes on all of its files as one result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from benchkit.simulation.graph import VirtualGraph

#: Versions of the format that are read; 1.6 is 1.5 with sums.
VERSIONS = ("1.4", "1.5", "1.6")
#: Ratio of the bytes that tasks fetch here to those that they read, above which a note says so; and
#: the fewest bytes: fewer take no time.
MANY_BYTES, MIN_BYTES = 1.1, 1e6


class _Task(NamedTuple):
    ids: Sequence[str]  # Texts by which other tasks name it, the certain one first
    name: str
    program: str
    parents: Sequence[str]
    seconds: Any  # None: not in the file
    cores: float
    reads: Sequence[str]  # Ids of files
    writes: Sequence[str]

    @property
    def kind(self) -> str:
        """Name of its program, or else its own without a number."""
        program = self.program.rpartition("/")[2]
        if re.fullmatch(r"[\w.+-]+", program):  # no script
            return program
        name = self.name.rstrip("0123456789")  # tasks of one kind differ in `_ID0001` or `-1`
        if name != self.name:
            name = name.removesuffix("ID").rstrip("_.-")
        return name or "task"


def read_wfformat(path: Path) -> VirtualGraph:
    """Return the graph in a file, with a note of what differs from the original."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not JSON: {error}") from None
    version = content.get("schemaVersion") if isinstance(content, dict) else None
    if version not in VERSIONS:
        raise ValueError(
            f"{path}: schemaVersion {version!r}: must be {', '.join(VERSIONS)} of WfFormat"
        )
    try:
        read = _read_1_4 if version == "1.4" else _read_1_5
        tasks, sizes = read(content["workflow"])
        return _graph(tasks, sizes, path.stem, _system(content))
    except (AttributeError, KeyError, TypeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}: is not WfFormat {version}: {what}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read_1_5(workflow: Mapping[str, Any]) -> tuple[list[_Task], dict[str, int]]:
    """Return the tasks, and the bytes of each file."""
    given = workflow["specification"]
    ran = {task["id"]: task for task in workflow.get("execution", {}).get("tasks", ())}
    tasks = []
    for task in given["tasks"]:
        measured = ran.get(task["id"], {})
        tasks.append(
            _Task(
                (task["id"],),
                task["name"],
                measured.get("command", {}).get("program", ""),
                task["parents"],
                measured.get("runtimeInSeconds"),
                measured.get("coreCount", 1),
                task.get("inputFiles", ()),
                task.get("outputFiles", ()),
            )
        )
    return tasks, {file["id"]: file["sizeInBytes"] for file in given.get("files", ())}


def _read_1_4(workflow: Mapping[str, Any]) -> tuple[list[_Task], dict[str, int]]:
    """Return the same of version 1.4, in which a task has its files and its seconds."""
    tasks, sizes = [], {}
    for task in workflow["tasks"]:
        files: dict[str, list[str]] = {"input": [], "output": []}
        for file in task.get("files", ()):
            files[file["link"].lower()].append(file["name"])
            # Its schema defines the first name of both, and requires the second one.
            sizes[file["name"]] = file.get("sizeInBytes", file.get("size"))
        tasks.append(
            _Task(
                (task.get("id", task["name"]), task["name"]),
                task["name"],
                task.get("category", ""),
                task["parents"],
                task.get("runtimeInSeconds", task.get("runtime")),
                task.get("cores", 1),
                files["input"],
                files["output"],
            )
        )
    return tasks, sizes


def _system(content: Mapping[str, Any]) -> str:
    """Return how long the system of the file took, as text."""
    workflow = content["workflow"]
    seconds = workflow.get("execution", workflow).get("makespanInSeconds")
    system = content.get("runtimeSystem", content.get("wms", {})).get("name", "its own system")
    return f"{system} took {seconds:g} s on its own machines" if seconds else ""


def _graph(
    tasks: Sequence[_Task], sizes: Mapping[str, int], name: str, system: str
) -> VirtualGraph:
    """Return the graph of the tasks of a file."""
    number = {task.ids[-1]: index for index, task in enumerate(tasks)}
    number |= {task.ids[0]: index for index, task in enumerate(tasks)}
    if len({task.ids[0] for task in tasks}) < len(tasks):
        raise ValueError("two tasks have the same id")
    if not tasks:
        raise ValueError("it has no tasks")
    unknown = [task.name for task in tasks if task.seconds is None]
    if unknown:
        raise ValueError(
            f"{len(unknown)} of {len(tasks)} tasks have no runtimeInSeconds, such as {unknown[0]}: "
            "only a workflow that ran can be simulated"
        )
    for task in tasks:
        is_number = type(task.seconds) in (int, float)
        if not is_number or not isfinite(task.seconds) or task.seconds < 0:
            raise ValueError(f"task {task.name}: runtimeInSeconds {task.seconds!r}")
        for parent in task.parents:
            if parent not in number:
                raise ValueError(f"task {task.name}: its parent {parent} is not in the file")
    graph = VirtualGraph(
        # The hash makes the tasks of a kind one group, as those of an array are.
        keys=[(f"{task.kind}-0123abcd", index) for index, task in enumerate(tasks)],
        dependencies=[sorted({number[parent] for parent in task.parents}) for task in tasks],
        seconds=[float(task.seconds) for task in tasks],
        nbytes=[sum(sizes.get(file) or 0 for file in set(task.writes)) for task in tasks],
        name="wfformat." + re.sub(r"[^\w.-]", "_", name),
    )
    try:
        list(graph.in_order())
    except CycleError as error:
        names = ", ".join(tasks[index].name for index in error.args[1])
        raise ValueError(f"tasks wait for each other: {names}") from None
    graph.note = "; ".join(filter(None, (system, *_differences(tasks, sizes, graph))))
    return graph


def _differences(
    tasks: Sequence[_Task], sizes: Mapping[str, int], graph: VirtualGraph
) -> Iterator[str]:
    """Yield what differs from what ran, a clause each."""
    n_wide = sum(task.cores > 1 for task in tasks)
    if n_wide:
        yield f"tasks that used more than one core, and take one thread here: {n_wide}"
    written = {file for task in tasks for file in task.writes}
    n_unknown = sum(sizes.get(file) is None for file in written)
    if n_unknown:
        yield f"files without a size, which count as 0 B: {n_unknown}"
    if not written:
        yield "no files are listed: transfers are free"
    moved = sum(graph.nbytes[other] for row in graph.dependencies for other in row)
    read = sum(sizes.get(file) or 0 for task in tasks for file in written.intersection(task.reads))
    if moved > MANY_BYTES * max(read, MIN_BYTES):
        yield (
            f"a task fetches all files of its parents: {moved / 1e6:,.0f} MB in all, of which "
            f"it read {read / 1e6:,.0f} MB"
        )
