"""Functions that test whether a workload's check accepts the true result and rejects wrong ones.

For each workload, a table maps a description of the error to a function that makes a wrong result.
"""

from dataclasses import replace
from pathlib import Path

import dask
import numpy as np
import pandas as pd

from benchkit.measure.discovery import collect
from benchkit.measure.engines.engine import wait_for_result
from benchkit.measure.errors import WrongAnswer
from benchkit.measure.scale import Scale

VARIANTS = collect([Path(__file__).parents[2] / "workloads"]).variants()
MIB = 2**20
#: Memory settings of workers in separate processes: Dask's defaults, also while the fixture
#: `client` is active, which disables them for its in-process workers.
WATCHED = {
    f"distributed.worker.memory.{name}": share
    for name, share in (("target", 0.6), ("spill", 0.7), ("pause", 0.8), ("terminate", 0.95))
}
TINY = Scale(memory=96 * MIB, threads=2, workers=2, fraction=0.3)
#: The same number of partitions with fewer rows takes half the time.
FEW_ROWS = replace(TINY, fraction=0.12)


def proved_here(wrong):
    """Return the variants of the workloads that a table of wrong results contains."""
    return [variant for variant in VARIANTS if variant.workload.name in wrong]


def run_variant(client, variant, scale=TINY):
    """Run the steps before the check; return the arguments that the check may request."""
    client.wait_for_workers(TINY.workers, timeout=120)
    available = {
        "client": client,
        "scale": scale,
        "seed": variant.workload.seed,
        **variant.params,
    }
    available["prepared"] = variant.workload.call("prepare", **available)
    available["result"] = wait_for_result(variant.workload.call("run", **available))
    return available


def prove(client, variant, wrong, scale=FEW_ROWS):
    """Run a variant; its check must accept the result and reject every wrong one.

    The key in the table is the name of the variant if it is there (when its result has another
    form), else the name of the workload.
    """
    workload = variant.workload
    spoilers = wrong.get(variant.name, wrong[workload.name])
    available = run_variant(client, variant, scale)
    try:
        extra = workload.call("check", **available)
        accepted = []
        for what, spoil in spoilers.items():
            try:
                workload.call("check", **{**available, "result": spoil(available["result"])})
            except (WrongAnswer, AssertionError):
                continue
            accepted.append(what)
    finally:
        workload.call("cleanup", **available)

    assert not accepted, f"check of {variant.name} accepts a wrong result: {accepted[0]}"
    assert set(extra or {}) == set(workload.metrics)


# -- wrong results --------------------------------------------------------------------------------


def array_with(change):
    def spoil(result):
        array = np.array(result, dtype=float)
        change(array)
        return array

    return spoil


def one_off(array):
    array[3] += 1


def one_moved(array):
    array[1] += 1
    array[2] -= 1


def not_a_number(array):
    array[5] = np.nan


def times(factor):
    return lambda number: np.asarray(number, dtype=float) * factor


def rows_with(change):
    """Change the frame that a workload returned, a Dask or a pandas one."""

    def spoil(result):
        frame = result.compute() if hasattr(result, "compute") else result.copy()
        frame = change(frame)
        return dask.dataframe.from_pandas(frame, npartitions=2) if dask_like(result) else frame

    return spoil


def dask_like(result):
    return hasattr(result, "npartitions")


def with_value(column, change, row=0):
    def apply(frame):
        frame = frame.reset_index(drop=True) if frame.index.has_duplicates else frame.copy()
        frame[column] = frame[column].astype(object)
        frame.loc[frame.index[row], column] = change(frame[column].iloc[row])
        return frame.infer_objects()

    return rows_with(apply)


def swapped_values(column):
    def apply(frame):
        values = frame[column].tolist()
        values[0], values[1] = values[1], values[0]
        return frame.assign(**{column: values})

    return rows_with(apply)


def edges_with(change):
    def spoil(result):
        edges = result["edges"].reset_index(drop=True)
        return {**result, "edges": change(edges)}

    return spoil


def item(name, value):
    return lambda result: {**result, name: value(result[name]) if callable(value) else value}


def futures_with(change):
    def spoil(result):
        return {**result, "futures": change(list(result["futures"]))}

    return spoil


def nan(value):
    return float("nan")


def series_with(change):
    """Change the values of a Series that a workload returned."""

    def spoil(series):
        values = series.to_numpy(copy=True)
        change(values)
        return pd.Series(values, index=series.index, name=series.name)

    return spoil


def entry(change, place=7):
    """Change one entry of an array, by its place in the flat array."""

    def spoil(array):
        array = np.array(array)
        array.reshape(-1)[place] = change(array.reshape(-1)[place])
        return array

    return spoil


#: The two numbers of a fingerprint: the first detects a lost value, the second a moved one.
FINGERPRINT = {
    "a value is lost": lambda result: np.asarray(result) * [1 - 1e-7, 1],
    "blocks have changed places": lambda result: np.asarray(result) * [1, 1 + 1e-7],
    "not a number": times(np.nan),
}


def wrong_for(variant, wrong):
    """Return wrong results for the last variant of a check; other variants test the true result."""
    is_proof = variant == variant.workload.variants()[-1] or "result_as" in variant.params
    return wrong if is_proof else {variant.workload.name: {}}
