"""IO workloads: rows of a database, read and written by ranges of a key."""

from __future__ import annotations

import contextlib
import sqlite3
from itertools import pairwise
from pathlib import Path

from _scratch_data import new_folder, remove_folder

from benchkit.measure import expect, workload

#: Bytes of a row in memory; partitions per thread.
ROW_BYTES, PARTS = 40, 8
SHOPS = 50
#: Longest wait of a writer for another writer in s.
BUSY_S = 120


@workload(
    category="io",
    variants={"job": ["etl", "read"]},
    tags=["io", "groupby", "ci[job=read]", "nightly"],
    requires=["numpy", "pandas", "dask.dataframe"],
    deadline_s=180,
    version=2,
)
def database(prepared, *, job):
    """Read a table by ranges of its key, and sum sales by shop; or write a cleaned copy of it.

    Each partition is a query, as in connectors for data warehouses; SQLite takes the place of the
    warehouse. "etl" drops rows without a price, adds a column, and writes each partition to another
    database, which accepts one writer at a time; workers on several machines need a shared folder
    with file locks. Stresses reading rows through a cursor, conversion to columns, and writers that
    wait for each other.

    Scale: 0.02 x cluster memory, linear; 8 partitions per thread.
    About 5 s on 2 x 1 x 1 GiB.
    Check: rows and sum of each shop, by one query of the database.
    """
    import dask.dataframe as dd

    path, target = prepared["path"], prepared["target"]
    meta = _query((0, 0), path=path).astype({"shop": "int64", "price": "float64"})
    frame = dd.from_map(_query, prepared["ranges"], path=path, meta=meta)
    if job == "read":
        sales = frame.dropna(subset=["price"]).groupby("shop")["price"]
        return sales.agg(["count", "sum"]).compute()
    written = frame.map_partitions(_clean_and_write, path=target, meta={"rows": int})
    return int(written["rows"].sum().compute())


@database.prepare
def _(scale, seed):
    import numpy as np
    import pandas as pd

    folder = Path(new_folder())
    path, target = folder / "sales.db", folder / "clean.db"
    rows = max(2000, scale.linear(0.02) // ROW_BYTES)
    random = np.random.default_rng(seed)
    price = np.round(random.lognormal(2, 1, rows), 2)
    price[random.random(rows) < 0.03] = np.nan
    frame = pd.DataFrame({"shop": random.integers(0, SHOPS, rows), "price": price})
    with contextlib.closing(sqlite3.connect(path)) as database:
        frame.to_sql("sales", database, index_label="id")
        database.execute("CREATE UNIQUE INDEX by_id ON sales (id)")
        database.commit()
    # A second file, so that readers do not wait for the writer. One file would need the write-ahead
    # log of SQLite, which is in memory and cannot be shared between machines.
    with contextlib.closing(sqlite3.connect(target)) as database:
        database.execute("CREATE TABLE clean (id INTEGER, shop INTEGER, price REAL, cents INTEGER)")
        database.commit()
    count = PARTS * scale.threads
    edges = [rows * number // count for number in range(count + 1)]
    return {
        "folder": folder,
        "path": str(path),
        "target": str(target),
        "ranges": list(pairwise(edges)),
    }


@database.check
def _(result, prepared, *, job):
    import pandas as pd

    by_shop = "SELECT shop, count(price) AS count, sum({}) AS sum FROM {} {} GROUP BY shop"
    with contextlib.closing(sqlite3.connect(prepared["path"])) as database:
        wanted = pd.read_sql(by_shop.format("price", "sales", ""), database, index_col="shop")
    if job == "etl":
        expect(result, equals=int(wanted["count"].sum()), what="rows that were written")
        fair = "WHERE cents = CAST(round(price * 100) AS INTEGER)"
        with contextlib.closing(sqlite3.connect(prepared["target"])) as database:
            result = pd.read_sql(
                by_shop.format("cents / 100.0", "clean", fair), database, index_col="shop"
            )
    result = result.sort_index()
    expect(list(result.index), equals=list(wanted.index), what="shops")
    expect(result["count"].to_numpy(), equals=wanted["count"].to_numpy(), what="rows by shop")
    expect(result["sum"].to_numpy(), close_to=wanted["sum"].to_numpy(), rtol=1e-9, what="sales")


@database.cleanup
def _(prepared=None):
    remove_folder(prepared)


def _query(bounds, *, path):
    import pandas as pd

    query = "SELECT id, shop, price FROM sales WHERE id >= ? AND id < ?"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return pd.read_sql(query, database, params=bounds, index_col="id")


def _clean_and_write(part, *, path):
    import pandas as pd

    clean = part.dropna(subset=["price"])
    clean = clean.assign(cents=(clean["price"] * 100).round().astype("int64"))
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S)) as database:
        clean.to_sql("clean", database, index_label="id", if_exists="append")
    return pd.DataFrame({"rows": [len(clean)]})
