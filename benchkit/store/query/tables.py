"""Tables of one run for queries over many runs: tasks, task groups, transfers, workers, events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchkit.store.run import Run, worker_names
from benchkit.store.tables import read_table

__all__ = ["SCHEMAS", "run_tables"]

_TEXT = pa.dictionary(pa.int32(), pa.string())
#: Columns that identify the run, in each table.
_RUN = {"run": _TEXT, "workload": _TEXT, "environment": _TEXT}
_COLUMNS: dict[str, dict[str, pa.DataType]] = {}
for _row in read_table("query_columns"):
    _type = _TEXT if _row["type"] == "text" else pa.type_for_alias(_row["type"])
    _COLUMNS.setdefault(_row["table"], dict(_RUN))[_row["column"]] = _type
#: Schemas by name of the table. Times are seconds since the clock of the run started, sizes bytes;
#: workers are numbers, -1 outside of the cluster. `task_groups` has quantiles of the durations of a
#: group's tasks: a median over 100 million tasks takes seconds, over their groups milliseconds.
SCHEMAS = {name: pa.schema(columns) for name, columns in _COLUMNS.items()}


def run_tables(run: Run) -> dict[str, pa.Table]:
    """Return the tables of a run."""
    frames = {
        "tasks": _tasks(run),
        "task_groups": _task_groups(run),
        "transfers": _transfers(run),
        "workers": _workers(run),
        "events": run.events(),
    }
    return {name: _table(name, frame, run) for name, frame in frames.items()}


def _table(name: str, frame: pd.DataFrame, run: Run) -> pa.Table:
    schema, length = SCHEMAS[name], len(frame)
    facts = (run.id, run.workload, str(run.tree.attrs.get("environment", "")))
    arrays = [
        pa.DictionaryArray.from_arrays(np.zeros(length, "i4"), pa.array([fact])) for fact in facts
    ]
    for field in list(schema)[len(facts) :]:
        if field.name not in frame:
            arrays.append(pa.nulls(length, field.type))
            continue
        values: Any = frame[field.name]
        array = pa.array(values, from_pandas=True)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        is_text = pa.types.is_dictionary(field.type)
        if is_text and not pa.types.is_dictionary(array.type):
            array = array.cast(pa.string()).dictionary_encode()
        arrays.append(array.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _tasks(run: Run) -> pd.DataFrame:
    stream = run.task_stream()
    if stream.empty:
        return stream
    prefixes = run.tree["task_groups"].to_dataset()["prefix"].values.astype(str)
    codes = stream["task_group"].cat.codes
    names, numbers = np.unique(prefixes, return_inverse=True)
    prefix = numbers[codes]
    stream["prefix"] = pd.Categorical.from_codes(prefix, names)
    # A median over many runs needs a quarter less time when the durations of each run are sorted.
    order = np.lexsort((stream["duration"], prefix))
    return stream.assign(ok=stream["ok"].astype(bool)).iloc[order]


def _task_groups(run: Run) -> pd.DataFrame:
    frame = run.task_groups()
    if frame.empty:
        return frame
    frame = frame.rename(
        columns={
            "result (B)": "nbytes",
            **{name: name[: -len(" (s)")].replace("-", "_") for name in frame if " (s)" in name},
        }
    )
    groups = run.tree["task_groups"].to_dataset()
    prefix = pd.Series(groups["prefix"].values, groups["task_group"].values)
    frame = frame.assign(prefix=prefix.reindex(frame.index))
    stream = run.task_stream()
    if not stream.empty:
        durations = stream.groupby("task_group", observed=True)["duration"]
        for name, share in (("median", 0.5), ("p95", 0.95), ("max", 1.0)):
            quantile = durations.quantile(share)
            quantile.index = quantile.index.astype(str)
            frame[f"duration_{name}"] = quantile.reindex(frame.index)
    return frame.reset_index()


def _transfers(run: Run) -> pd.DataFrame:
    data = run.transfers()
    names = ("source", "destination", "count", "bytes", "seconds")
    return pd.DataFrame({name: data[name].values for name in names if name in data})


def _workers(run: Run) -> pd.DataFrame:
    if "workers" not in run.tree.children:
        return pd.DataFrame()
    data = run.tree["workers"].to_dataset()
    names = [
        name for name in ("host", "nthreads", "memory_limit", "joined", "left") if name in data
    ]
    frame = pd.DataFrame({name: data[name].values for name in names})
    return frame.assign(worker=np.arange(len(frame)), name=worker_names(run.tree))
