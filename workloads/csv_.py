"""CSV workloads: parsing of text."""

from __future__ import annotations

import _recipes.tables  # noqa: F401  (declares the datasets)
from _scratch_data import new_folder, remove_folder
from _sizes import MOST_THREADS, in_steps

from benchkit.measure import dataset, expect, workload

#: Columns of few values: one nullable byte each.
SMALL = {name: "UInt8" for name in ("VendorID", "passenger_count", "RatecodeID", "payment_type")}
#: Indices of the float columns of GDELT, which sometimes have a leading "#".
FLOATS = (30, 34, 39)
N_COLUMNS = 58
NEWSPAPERS = "washingtonpost|nytimes"


@workload(
    tags=["io", "parsing", "ci", "nightly"],
    requires=["pandas", "dask.dataframe"],
    max_threads=MOST_THREADS,
)
def basic(scale, prepared):
    """Read a year of taxi trips from text, persist them, and average tips by number of passengers.

    Stresses the parser, which holds the GIL for much of its time, splitting of files into blocks at
    line ends, and conversion of texts.

    Scale: 600 000 rows (60 MB of text) for each 2 GiB of cluster memory x fraction, in steps of 1,
    2, 5; a block is 16 MiB at reference memory.
    About 1 s on 2 x 1 x 1 GiB, plus 6 s once to make the data.
    Check: rows and mean tip of each number of passengers, from the manifest of the dataset.
    """
    import dask.dataframe as dd

    blocksize = scale.chunk("16 MiB")
    frame = dd.read_csv(prepared.files("taxi"), blocksize=blocksize, dtype=SMALL).persist()
    return frame.groupby("passenger_count")["tip_amount"].agg(["count", "mean"]).compute()


@basic.prepare
def _(scale):
    rows = in_steps(max(200, scale.linear(1) / 42_900))
    return dataset("taxi_csv", rows_per_month=int(rows))


@basic.check
def _(result, prepared):
    known = prepared.manifest["known"]
    result = result.sort_index()
    expect(result.index.astype(int).to_numpy(), equals=list(range(7)), what="passengers")
    expect(result["count"].to_numpy(), equals=known["counts"], what="rows")
    pairs = zip(known["tip_cents"], known["counts"], strict=True)
    means = [cents / 100 / max(1, count) for cents, count in pairs]
    expect(result["mean"].to_numpy(), close_to=means, rtol=1e-9, what="mean tip")


@workload(
    tags=["io", "parsing", "ci", "nightly"],
    requires=["pandas", "pyarrow", "dask.dataframe"],
    max_threads=MOST_THREADS,
    version=2,
)
def to_parquet(prepared):
    """Read text tables with format errors, clean them, keep two newspapers, and write Parquet.

    Lines with too many columns are skipped, floats lose a leading "#", each URL is kept once per
    file. Stresses the parser with Python functions as converters, and string methods; a partition
    is one file, as in most real pipelines of this kind.

    Scale: 2000 lines of 58 columns per file (1000 below 10 files), a file for each 40 MiB of
    cluster memory x fraction, in steps of 1, 2, 5.
    About 5 s on 2 x 1 x 1 GiB, plus 3 s once to make the data.
    Check: rows and sum of a cleaned column in the written files, from the manifest of the dataset;
    the three cleaned columns of each row, by plain Python from the lines.
    """
    import dask.dataframe as dd

    data, folder = prepared["data"], prepared["folder"]
    names = [f"column_{i}" for i in range(N_COLUMNS - 1)] + ["source"]
    frame = dd.read_csv(
        data.files("events"),
        sep="\t",
        names=names,
        header=None,
        blocksize=None,
        on_bad_lines="skip",
        converters={f"column_{i}": _to_float for i in FLOATS},
    )
    frame = frame.map_partitions(_drop_repeated)
    frame = frame[frame["source"].str.contains(NEWSPAPERS, regex=True)]
    frame.to_parquet(folder)
    return folder


@to_parquet.prepare
def _(scale):
    files = int(in_steps(max(2, scale.linear(1) / (40 * 2**20))))
    rows = 2000 if files >= 10 else 1000
    return {"data": dataset("gdelt", files=files, rows_per_file=rows), "folder": new_folder()}


@to_parquet.check
def _(result, prepared):
    import pandas as pd

    known = prepared["data"].manifest["known"]
    frame = pd.read_parquet(result)
    expect(len(frame), equals=known["kept"], what="rows kept")
    column = f"column_{FLOATS[0]}"
    expect(float(frame[column].sum()), close_to=known["tenths"] / 10, rtol=1e-9, what=column)
    files = prepared["data"].files("events", here=True)
    addresses, *columns = zip(*sorted(row for path in files for row in _kept(path)), strict=True)
    frame = frame.sort_values("source")
    expect(list(frame["source"]), equals=list(addresses), what="addresses kept")
    for place, wanted in zip(FLOATS, columns, strict=True):
        found = frame[f"column_{place}"].to_numpy()
        expect(found, equals=list(wanted), what=f"column_{place}")


@to_parquet.cleanup
def _(prepared=None):
    remove_folder(prepared)


def _kept(path):
    """Return the rows of a file that are to be kept: the URL and the cleaned columns."""
    seen = {}
    with open(path) as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if len(fields) == N_COLUMNS:
                row = (fields[-1], *(_to_float(fields[place]) for place in FLOATS))
                seen.setdefault(fields[-1], row)
    return [row for row in seen.values() if any(name in row[0] for name in NEWSPAPERS.split("|"))]


def _to_float(text):
    return float(text.lstrip("#"))


def _drop_repeated(frame):
    return frame.drop_duplicates("source")
