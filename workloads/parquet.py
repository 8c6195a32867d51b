"""Parquet workloads."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from benchkit.measure import expect, random_frame, workload
from benchkit.measure.generate import WIDE
from benchkit.measure.recipes import data_folder

READ_BACK = ["float_7", "int_11"]


@workload(
    tags=["io", "serialisation", "first-twelve", "quick"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
)
def write_wide(prepared):
    """Write a wide frame to Parquet, then read two of its 100 columns back.

    25 columns each of strings, floats, integers and categories, as a time series that is in
    memory already. Stresses Arrow conversion, encoding and the file system, and little else; the
    folder must be one that client and workers share (see `benchkit data`).

    Scale: 0.2 x cluster memory, linear; a partition is 1/100 of one thread's memory. About 5 s on
    2 x 1 x 1 GiB.
    Check: the sums of the two columns; the rows, columns and row groups that the files' footers
    list; and one file in the middle, read by pandas, is its partition, value by value.
    """
    import dask.dataframe as dd

    prepared["frame"].to_parquet(prepared["folder"])
    return dd.read_parquet(prepared["folder"], columns=READ_BACK).sum().compute()


@write_wide.prepare
def _(client, scale, seed):
    from distributed import wait

    frame = random_frame(
        scale.linear(0.2),
        WIDE,
        partition_bytes=scale.memory_per_thread / 100,
        freq="10ms",
        seed=seed,
    ).persist()
    wait(frame)
    root = data_folder() / "written"
    root.mkdir(parents=True, exist_ok=True)
    return {"frame": frame, "folder": tempfile.mkdtemp(dir=root)}


@write_wide.check
def _(result, prepared):
    import pandas as pd
    from pyarrow import parquet

    frame = prepared["frame"]
    wanted = frame[READ_BACK].sum().compute()
    expect(result[READ_BACK].to_numpy(), close_to=wanted.to_numpy(), rtol=1e-9, what="sums")
    footers = [parquet.read_metadata(path) for path in Path(prepared["folder"]).glob("*.parquet")]
    expect(len(footers), equals=frame.npartitions, what="files")
    expect(sum(footer.num_rows for footer in footers), equals=len(frame), what="rows")
    expect({footer.num_columns for footer in footers} == {sum(WIDE.values()) + 1}, equals=True,
           what="100 columns and the index in every file")  # fmt: skip
    expect(min(footer.num_row_groups for footer in footers), at_least=1, what="row groups")
    middle = frame.npartitions // 2
    read = pd.read_parquet(Path(prepared["folder"]) / f"part.{middle}.parquet")
    # Strings and categories may come back in another type that holds the same values.
    pd.testing.assert_frame_equal(
        read, frame.partitions[middle].compute(), check_dtype=False, check_categorical=False,
        check_freq=False,
    )  # fmt: skip


@write_wide.cleanup
def _(prepared=None):
    if prepared is not None:
        shutil.rmtree(prepared["folder"], ignore_errors=True)
