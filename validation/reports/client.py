"""Reports in which the client is slow: it works, waits, asks one by one, or collects too much."""

import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import as_completed

from validation.reports.table import pair

DOCS = "https://docs.dask.org/en/stable"
DASK = "https://github.com/dask/dask"
DISTRIBUTED = "https://github.com/dask/distributed"


def nap(number: int, seconds: float) -> int:
    """Stand for work that takes a time."""
    time.sleep(seconds)
    return number


@pair(
    id="compute-in-loop",
    report=(
        "https://github.com/dask/dask-searchcv/pull/72",
        f"{DOCS}/best-practices.html#avoid-calling-compute-repeatedly",
    ),
    cause="serial submit",
    advice="Collect the delayed objects and call dask.compute once on all of them.",
    wrong=("larger chunks", "more workers", "a faster network"),
    speedup=2.5,
    sleeping=True,
)
class ComputeInLoop:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(dask.delayed(nap)(number, 0.1).compute() for number in range(40))

    @staticmethod
    def mended(client: Any) -> int:
        return sum(dask.compute(*(dask.delayed(nap)(number, 0.1) for number in range(40))))


@pair(
    id="result-of-each-submit",
    report="https://github.com/dmlc/xgboost/issues/6407",
    cause="serial submit",
    advice="Submit the predictions of all partitions first, then gather them.",
    wrong=("more workers", "larger chunks", "persist the input"),
    speedup=2.5,
    sleeping=True,
)
class ResultOfEachSubmit:
    @staticmethod
    def sick(client: Any) -> int:
        total = 0
        for part in range(24):
            total += client.submit(nap, part, 0.2).result()
        return total

    @staticmethod
    def mended(client: Any) -> int:
        return sum(client.gather([client.submit(nap, part, 0.2) for part in range(24)]))


#: Seconds of the urls of one batch: one is slow.
BATCH_S = (1.2, 0.1, 0.1, 0.1)


@pair(
    id="batches-of-four",
    report=(f"{DASK}/issues/9693", "https://github.com/OGGM/oggm/issues/661"),
    cause="barrier",
    advice="Submit all tasks at once instead of a compute for each batch; use as_completed.",
    wrong=("smaller batches", "more threads", "larger chunks"),
    also=("serial submit", "skew"),
    speedup=2.0,
    sleeping=True,
)
class BatchesOfFour:
    @staticmethod
    def sick(client: Any) -> int:
        total = 0
        for batch in range(5):
            lazy = [dask.delayed(nap)(4 * batch + k, s) for k, s in enumerate(BATCH_S)]
            total += sum(dask.compute(*lazy))
        return total

    @staticmethod
    def mended(client: Any) -> int:
        lazy = [dask.delayed(nap)(n, BATCH_S[n % 4]) for n in range(20)]
        return sum(dask.compute(*lazy))


@pair(
    id="client-loads-inputs",
    report=(f"{DOCS}/best-practices.html#load-data-with-dask", f"{DISTRIBUTED}/issues/3463"),
    cause="client",
    advice="Load each input inside of the task that needs it, not in the client's loop.",
    wrong=("more workers", "more threads", "larger chunks"),
    also=("serial submit",),
    speedup=1.8,
    sleeping=True,
)
class ClientLoadsInputs:
    @staticmethod
    def sick(client: Any) -> int:
        futures = []
        for number in range(30):
            row = nap(number, 0.2)  # a query of a database, in the client
            futures.append(client.submit(nap, row, 0.1))
        return sum(client.gather(futures))

    @staticmethod
    def mended(client: Any) -> int:
        return sum(client.gather(client.map(ClientLoadsInputs.query_and_work, range(30))))

    @staticmethod
    def query_and_work(number: int) -> int:
        return nap(nap(number, 0.2), 0.1)


@cache
def csv_files() -> list[str]:
    """Write 24 files of lines with a date, a name and two numbers."""
    folder = Path(tempfile.mkdtemp(prefix="reports-csv-"))
    random = np.random.default_rng(0)
    n_rows = 40_000
    paths = []
    for number in range(24):
        frame = pd.DataFrame(
            {
                "when": pd.date_range("2024-01-01", periods=n_rows, freq="s").astype(str),
                "name": random.choice(["Alice", "Bob", "Dan", "Edith"], n_rows),
                "x": random.random(n_rows),
                "y": random.integers(0, 1000, n_rows),
            }
        )
        path = folder / f"{number:02}.csv"
        frame.to_csv(path, index=False)
        paths.append(str(path))
    return paths


def parse(path: str) -> pd.DataFrame:
    """Parse a file line by line, as a format without a fast reader needs."""
    rows = []
    for line in Path(path).read_text().splitlines()[1:]:
        when, name, x, y = line.split(",")
        rows.append((when[:13], name, float(x), int(y)))
    return pd.DataFrame(rows, columns=["when", "name", "x", "y"])


def total_of(frame: pd.DataFrame) -> int:
    """Return the sum of a column."""
    return int(frame["y"].sum())


@pair(
    id="client-parses-files",
    report=f"{DASK}/issues/4145",
    cause="client",
    advice="Let the workers read and parse the files: map the parser over the paths.",
    wrong=("more workers", "scatter the frames", "larger chunks"),
    also=("embedded data", "serial submit"),
    speedup=1.3,
    prepare=csv_files,
)
class ClientParsesFiles:
    @staticmethod
    def sick(client: Any) -> int:
        futures = [client.submit(total_of, parse(path)) for path in csv_files()]
        return sum(client.gather(futures))

    @staticmethod
    def mended(client: Any) -> int:
        frames = client.map(parse, csv_files())
        return sum(client.gather(client.map(total_of, frames)))


def points(number: int) -> pd.DataFrame:
    """Return a partition of points."""
    random = np.random.default_rng(number)
    return pd.DataFrame(random.integers(0, 100, (25_000, 2)), columns=["x", "y"])


@pair(
    id="rows-in-the-client",
    report=(f"{DISTRIBUTED}/issues/3285", f"{DASK}/pull/882"),
    cause="client",
    advice="Compute on the partitions (map_partitions, array operations) instead of iterrows.",
    wrong=("more workers", "larger chunks", "persist the frame only"),
    also=("gather", "serial submit", "python loop"),
    speedup=3.0,
)
class RowsInTheClient:
    @staticmethod
    def sick(client: Any) -> int:
        frame = dd.from_map(points, range(8))
        total = 0
        for _, row in frame.iterrows():
            total += int(row["x"] ** 2 + row["y"] ** 2)
        return total

    @staticmethod
    def mended(client: Any) -> int:
        frame = dd.from_map(points, range(8))
        return int((frame["x"] ** 2 + frame["y"] ** 2).sum().compute())


@pair(
    id="gather-then-mean",
    report=(f"{DASK}/issues/7212", "https://distributed.dask.org/en/stable/efficiency.html"),
    cause="gather",
    advice="Reduce on the cluster: x.mean().compute(), not x.compute().mean().",
    wrong=("more workers", "smaller chunks", "persist first"),
    also=("transfer", "client"),
    speedup=1.4,
)
class GatherThenMean:
    @staticmethod
    def array() -> da.Array:
        return da.random.RandomState(0).random_sample((10_000, 5_000), chunks=(500, 5_000))

    @staticmethod
    def sick(client: Any) -> float:
        return round(float(GatherThenMean.array().compute().mean()), 6)

    @staticmethod
    def mended(client: Any) -> float:
        return round(float(GatherThenMean.array().mean().compute()), 6)


def image(number: int) -> np.ndarray:
    """Return an image."""
    return np.full((1500, 1500), float(number))


def brighter(data: np.ndarray) -> np.ndarray:
    """Return an image of the same size."""
    return data + 1


def brightness(data: np.ndarray) -> float:
    """Return one number of an image."""
    return float(data.mean())


@pair(
    id="down-and-up-again",
    report=(f"{DASK}/issues/2033", f"{DASK}/issues/5768"),
    cause="gather",
    advice="Pass the futures to the next step; do not gather the data and send them again.",
    wrong=("more workers", "larger chunks", "compress messages"),
    also=("embedded data", "client", "transfer"),
    speedup=2.0,
)
class DownAndUpAgain:
    @staticmethod
    def sick(client: Any) -> float:
        images = client.gather(client.map(image, range(30)))
        images = client.gather(client.map(brighter, images))
        return sum(client.gather(client.map(brightness, images)))

    @staticmethod
    def mended(client: Any) -> float:
        images = client.map(brighter, client.map(image, range(30)))
        return sum(client.gather(client.map(brightness, images)))


@pair(
    id="results-in-order",
    report=f"{DISTRIBUTED}/pull/971",
    cause="client",
    advice="Handle results as they finish, with as_completed, so that handling overlaps the work.",
    wrong=("more workers", "larger chunks", "more threads"),
    also=("barrier", "skew"),
    speedup=1.4,
    sleeping=True,
)
class ResultsInOrder:
    @staticmethod
    def durations() -> list[float]:
        return [3.0] + [0.1] * 24

    @staticmethod
    def sick(client: Any) -> int:
        futures = client.map(nap, range(25), ResultsInOrder.durations())
        # Each result is written to a database by the client.
        return sum(nap(future.result(), 0.12) for future in futures)

    @staticmethod
    def mended(client: Any) -> int:
        futures = client.map(nap, range(25), ResultsInOrder.durations())
        done = as_completed(futures, with_results=True)
        return sum(nap(result, 0.12) for _, result in done)
