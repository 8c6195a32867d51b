"""Parquet workloads: reading and writing of tables."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

import _recipes.tables  # noqa: F401  (declares the datasets)
from _object_store import counts_of_worker, slow_store
from _scratch_data import new_folder, remove_folder
from _sizes import MOST_THREADS, in_steps

from benchkit.measure import dataset, expect, random_frame, workload
from benchkit.measure.data.random import WIDE

READ_BACK = ["float_7", "int_11"]
#: Share of rows that the filter selects; they are in separate row groups.
SELECTED = 0.05
ROW_GROUPS = 20


@workload(
    tags=["ci", "nightly", "io", "serialization", "first-twelve", "quick"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
)
def write_wide(prepared):
    """Write a wide frame to Parquet, then read two of its 100 columns.

    The frame is a persisted time series with 25 columns each of strings, floats, integers and
    categories. Stresses conversion to Arrow, encoding and the file system, and little else; client
    and workers must share the folder (see `benchkit data`).

    Scale: 0.2 x cluster memory, linear; a partition is 1/100 of one thread's memory.
    About 5 s on 2 x 1 x 1 GiB.
    Check: the sums of the two columns; rows, columns and row groups in the footers of the files;
    all values of one file in the middle, read by pandas.
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
    return {"frame": frame, "folder": new_folder()}


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
    # Strings and categories may have another type with the same values.
    pd.testing.assert_frame_equal(
        read, frame.partitions[middle].compute(), check_dtype=False, check_categorical=False,
        check_freq=False,
    )  # fmt: skip


@write_wide.cleanup
def _(prepared=None):
    remove_folder(prepared)


@workload(
    tags=["io", "groupby", "ci", "nightly"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
    max_threads=16,
)
def read_hive(prepared):
    """Read a table in folders by year and quarter, and select the first row of each.

    Stresses listing of files, columns made from folder names, and reading of columns, mostly
    strings, of which few values are needed.

    Scale: 16 files of 50 000 rows for each 2 GiB of cluster memory x fraction, in steps of 1, 2, 5.
    About 2 s on 2 x 1 x 1 GiB, plus 5 s once to make the data.
    Check: every value, by PyArrow from the first row of each file.
    """
    import dask.dataframe as dd

    frame = dd.read_parquet(prepared.at("hive"))
    return frame.groupby(["year", "quarter"], observed=True).first().compute()


@read_hive.prepare
def _(scale):
    return dataset("hive", rows_per_file=int(in_steps(max(200, scale.linear(1) / 42_900))))


@read_hive.check
def _(result, prepared):
    from pyarrow import parquet

    result = result.reset_index()
    got = {
        (int(row["year"]), int(row["quarter"])): {
            name: row[name] for name in result.columns if name not in ("year", "quarter")
        }
        for _, row in result.iterrows()
    }
    expect(len(result), equals=16, what="groups")
    for path in sorted((prepared.path / "hive").glob("*/*/*.parquet")):
        year, quarter = (int(part.split("=")[1]) for part in path.parts[-3:-1])
        with parquet.ParquetFile(path) as file:
            wanted = next(file.iter_batches(batch_size=1)).to_pylist()[0]
        same = got.get((year, quarter)) == wanted
        expect(same, equals=True, what=f"first row of {year}, quarter {quarter}")


@workload(
    tags=["io", "groupby", "strings", "ci", "nightly"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
    max_threads=MOST_THREADS,
)
def read_spark_like(prepared):
    """Read small row groups of long strings with a string index, and select their first rows.

    Spark writes such tables. Detects readers that are slow with them, as PyArrow 12 was by a factor
    of 50 (coiled/benchmarks#998). Stresses opening of files and decoding of strings.

    Scale: 1000 rows for each of three samples of a file of 20 row groups, a file for each 32 MiB of
    cluster memory x fraction, in steps of 1, 2, 5.
    About 3 s on 2 x 1 x 1 GiB, plus 3 s once to make the data.
    Check: each sample once, with the string and the number of its first row.
    """
    import dask.dataframe as dd

    frame = dd.read_parquet(prepared.files("spark_like"), index="sample_id")
    return frame.groupby(frame.index).first().compute()


@read_spark_like.prepare
def _(scale):
    files = int(in_steps(max(2, scale.linear(1) / (32 * 2**20))))
    return dataset("spark_like", files=files, rows_per_sample=1000 if files >= 10 else 200)


@read_spark_like.check
def _(result, prepared):
    count = 3 * prepared.manifest["params"]["files"]
    result = result.sort_index()
    expect(list(result.index), equals=[f"s{i:08d}" for i in range(count)], what="samples")
    expect(result["place"].to_numpy(), equals=[0] * count, what="place of the first row")
    wanted = [f"{i:08d}/{0:08d}" for i in range(count)]
    expect(list(result["text_0"]), equals=wanted, what="text of the first row")
    expect(list(result.columns), equals=["place", *(f"text_{i}" for i in range(5))], what="columns")
    expect(int(result.isna().sum().sum()), equals=0, what="values that are missing")


@workload(
    tags=["io", "latency", "overhead", "ci", "nightly"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
    metrics={"build_time": "s", "partitions": "1"},
)
def small_files(prepared):
    """Sum a column of a table in very many small files.

    Stresses the cost per file: listing, reading the footer, and a task. Metrics: the time to build
    the collection, and the number of partitions after files were combined.

    Scale: 200 files per thread x fraction; a file is 384 kB in memory at reference memory.
    About 10 s on 2 x 1 x 1 GiB.
    Check: rows, sum and a sum weighted by file, in closed form.
    """
    import dask.dataframe as dd

    begin = time.perf_counter()
    frame = dd.read_parquet(prepared["folder"])
    frame["product"] = frame["file"] * frame["value"]
    sums = frame[["value", "product"]].sum()
    built = time.perf_counter()
    sums = sums.compute()
    return {
        "value": int(sums["value"]),
        "product": int(sums["product"]),
        "build_time": built - begin,
        "partitions": frame.optimize().npartitions if hasattr(frame, "expr") else frame.npartitions,
    }


@small_files.prepare
def _(client, scale):
    folder = new_folder()
    files = max(10, round(200 * scale.threads * scale.fraction))
    rows = max(10, scale.chunk(384_000) // 24)
    # Many files per task: one task per file would take longer than the workload.
    batches = [range(begin, min(begin + 25, files)) for begin in range(0, files, 25)]
    client.gather(client.map(_write_small_files, batches, folder=folder, rows=rows, pure=False))
    return {"folder": folder, "files": files, "rows": rows}


@small_files.check
def _(result, prepared):
    files, rows = prepared["files"], prepared["rows"]
    count = files * rows
    expect(result["value"], equals=count * (count - 1) // 2, what="sum of the values")
    wanted = sum(i * (i * rows * rows + rows * (rows - 1) // 2) for i in range(files))
    expect(result["product"], equals=wanted, what="sum of values times files")
    return {"build_time": result["build_time"], "partitions": result["partitions"]}


@small_files.cleanup
def _(prepared=None):
    remove_folder(prepared)


@workload(
    tags=["io", "query", "ci", "nightly"],
    requires=["pandas", "pyarrow", "fsspec", "dask.dataframe"],
    metrics={"read_over_needed": "1", "requests": "1"},
)
def column_projection_filter(client, prepared):
    """Read 2 of 100 columns, and the twentieth of the rows that match a filter.

    The rows are in separate row groups, which can be seen from the footers. The file system counts
    the bytes read on the workers; the metric is this number relative to the size of the column
    chunks with the selected rows. Stresses use of footers, of range requests, and of read-ahead.

    Scale: 0.1 x cluster memory x fraction, in files of 20 row groups of 1/20 of a thread's memory.
    About 1 s on 2 x 1 x 1 GiB.
    Check: rows and sums, by PyArrow from the row groups that match the filter.
    """
    import dask.dataframe as dd

    label = uuid4().hex
    frame = dd.read_parquet(
        prepared["files"],
        columns=READ_BACK,
        filters=[("number", "<", prepared["limit"])],
        filesystem=slow_store(label=label),
    )
    sums = frame.assign(rows=1).sum().compute()
    counts = client.run(counts_of_worker(label)).values()
    return {
        "sums": sums,
        "nbytes": sum(each["nbytes"] for each in counts),
        "requests": sum(each["requests"] for each in counts),
    }


@column_projection_filter.prepare
def _(client, scale, seed):
    from benchkit.measure.data.random import ROW_BYTES

    folder = new_folder()
    row_bytes = 8 + sum(ROW_BYTES[kind] * count for kind, count in WIDE.items())
    partition_bytes = min(scale.linear(0.05), scale.memory_per_thread / 20)
    rows = max(ROW_GROUPS, round(partition_bytes / row_bytes / ROW_GROUPS) * ROW_GROUPS)
    files = max(2, round(scale.linear(0.1) / (rows * row_bytes)))
    write = _writer_of_wide(rows, seed, folder)
    paths = client.gather(client.map(write, range(files), pure=False))
    limit = round(SELECTED * ROW_GROUPS) * rows // ROW_GROUPS
    return {"folder": folder, "files": paths, "limit": limit}


@column_projection_filter.check
def _(result, prepared):
    from pyarrow import parquet

    needed = 0
    wanted = {name: 0.0 for name in (*READ_BACK, "rows")}
    for path in prepared["files"]:
        with parquet.ParquetFile(path) as file:
            places = [file.schema_arrow.names.index(name) for name in READ_BACK]
            groups = round(SELECTED * ROW_GROUPS)
            for group in range(groups):
                chunks = [file.metadata.row_group(group).column(place) for place in places]
                needed += sum(chunk.total_compressed_size for chunk in chunks)
            table = file.read_row_groups(list(range(groups)), columns=READ_BACK)
        for name in READ_BACK:
            wanted[name] += float(table[name].to_numpy().sum())
        wanted["rows"] += float(table.num_rows)
    sums = result["sums"]
    expect(float(sums["rows"]), equals=wanted["rows"], what="rows")
    for name in READ_BACK:
        expect(float(sums[name]), close_to=wanted[name], rtol=1e-9, what=name)
    expect(result["nbytes"], at_least=needed, what="bytes read")
    return {"read_over_needed": result["nbytes"] / needed, "requests": result["requests"]}


@column_projection_filter.cleanup
def _(prepared=None):
    remove_folder(prepared)


def _write_small_files(numbers, *, folder, rows):
    import numpy as np
    import pandas as pd

    for number in numbers:
        values = np.arange(number * rows, (number + 1) * rows)
        frame = pd.DataFrame({"file": number, "value": values, "noise": values * 0.5})
        frame.to_parquet(f"{folder}/{number:05d}.parquet")


def _writer_of_wide(rows, seed, folder):
    from benchkit.measure.data.random import frame_maker

    make = frame_maker(WIDE, rows, seed=seed)

    def write(number):
        import numpy as np

        path = f"{folder}/{number:05d}.parquet"
        frame = make(number).assign(number=np.arange(rows))
        frame.to_parquet(path, index=False, row_group_size=rows // ROW_GROUPS)
        return path

    return write
