"""Reports about graphs: tasks that are too small, data inside of graphs, work that is repeated."""

import time
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import get_client, get_worker, worker_client

from validation.reports.client import DASK, DISTRIBUTED, DOCS, nap
from validation.reports.table import pair


def increment(number: int) -> int:
    """Do next to nothing."""
    return number + 1


def increment_all(numbers: range) -> int:
    """Do next to nothing for a range, and sum it."""
    return sum(map(increment, numbers))


@pair(
    id="task-for-each-number",
    report=(f"{DISTRIBUTED}/issues/181", f"{DISTRIBUTED}/issues/2181"),
    cause="tiny tasks",
    advice="Put many items into one task (batches, or dask.bag): a task costs about 1 ms.",
    wrong=("more workers", "more threads", "smaller chunks", "a faster network"),
    also=("graph", "client"),
    speedup=4.0,
)
class TaskForEachNumber:
    @staticmethod
    def sick(client: Any) -> int:
        return client.submit(sum, client.map(increment, range(4000))).result()

    @staticmethod
    def mended(client: Any) -> int:
        ranges = [range(start, start + 500) for start in range(0, 4000, 500)]
        return client.submit(sum, client.map(increment_all, ranges)).result()


def column_total(data: np.ndarray, column: int) -> float:
    """Return the sum of a column."""
    return float(data[:, column].sum())


@pair(
    id="array-in-each-call",
    report=(
        f"{DOCS}/delayed-best-practices.html#avoid-repeatedly-putting-large-inputs-into-delayed-calls",
        f"{DISTRIBUTED}/issues/8814",
    ),
    cause="embedded data",
    advice="Wrap the array in dask.delayed (or scatter it) once and pass that to every call.",
    wrong=("more workers", "larger chunks", "more memory"),
    also=("client", "graph", "serialization"),
    speedup=2.0,
)
class ArrayInEachCall:
    @staticmethod
    def array() -> np.ndarray:
        return np.random.default_rng(0).random((20_000, 50))  # 8 MB

    @staticmethod
    def sick(client: Any) -> float:
        data = ArrayInEachCall.array()
        lazy = [dask.delayed(column_total)(data, column) for column in range(50)]
        return sum(dask.compute(*lazy))

    @staticmethod
    def mended(client: Any) -> float:
        data = dask.delayed(ArrayInEachCall.array())
        lazy = [dask.delayed(column_total)(data, column) for column in range(50)]
        return sum(dask.compute(*lazy))


class SlowModel:
    """A model whose unpickling takes long, like those of frameworks with graphs of their own."""

    def __reduce__(self) -> tuple[Any, ...]:
        return load_model, ()

    def predict(self, number: int) -> int:
        return nap(2 * number, 0.05)


def load_model() -> SlowModel:
    """Load a model."""
    time.sleep(0.25)
    return SlowModel()


def predict(model: SlowModel, number: int) -> int:
    """Predict with a model that the graph delivers."""
    return model.predict(number)


@pair(
    id="model-in-each-task",
    report=("https://github.com/dask/dask-examples/issues/35", f"{DASK}/issues/5599"),
    cause="serialization",
    advice="Make the model one task of the graph (delayed, or a future), not part of each task.",
    wrong=("more threads", "larger messages", "more workers", "faster network"),
    also=("embedded data", "repeated setup"),
    speedup=2.0,
    sleeping=True,
)
class ModelInEachTask:
    @staticmethod
    def sick(client: Any) -> int:
        model = SlowModel()
        return sum(client.gather([client.submit(predict, model, n) for n in range(30)]))

    @staticmethod
    def mended(client: Any) -> int:
        model = client.scatter(SlowModel(), broadcast=True)
        return sum(client.gather([client.submit(predict, model, n) for n in range(30)]))


def load_and_predict(number: int) -> int:
    """Load the model again for each item."""
    return load_model().predict(number)


def predict_with_cached_model(number: int) -> int:
    """Load the model once for each worker."""
    worker: Any = get_worker()
    with worker.model_lock:
        if not hasattr(worker, "model"):
            worker.model = load_model()
    return worker.model.predict(number)


def add_lock(dask_worker: Any) -> None:
    """Give a worker a lock for its model."""
    from threading import Lock

    dask_worker.model_lock = Lock()


@pair(
    id="load-in-each-task",
    report="https://github.com/dask/dask-ml/issues/281",
    cause="repeated setup",
    advice="Load the model once for each worker and keep it, or predict on batches of items.",
    wrong=("more threads", "smaller chunks", "larger memory", "a lock"),
    also=("serialization", "tiny tasks", "repeated work"),
    speedup=2.0,
    sleeping=True,
)
class LoadInEachTask:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(load_and_predict, range(60))))

    @staticmethod
    def mended(client: Any) -> int:
        client.run(add_lock)
        return sum(client.gather(client.map(predict_with_cached_model, range(60))))


def analyse_and_wait(first: int) -> int:
    """Start tasks from a task and wait, while the thread of this task stays occupied."""
    client = get_client()
    futures = [client.submit(nap, first + number, 0.2) for number in range(14)]
    return sum(client.gather(futures))


def analyse_aside(first: int) -> int:
    """Start tasks from a task and wait outside of the worker's threads."""
    with worker_client() as client:
        futures = [client.submit(nap, first + number, 0.2) for number in range(14)]
        return sum(client.gather(futures))


@pair(
    id="tasks-that-wait-for-tasks",
    report=(f"{DISTRIBUTED}/pull/1638", f"{DISTRIBUTED}/issues/2022"),
    cause="blocked threads",
    advice="Let a task that waits leave the pool: worker_client(), or secede and rejoin.",
    wrong=("larger chunks", "faster functions", "split the long tasks"),
    also=("skew",),
    speedup=1.4,
    sleeping=True,
)
class TasksThatWaitForTasks:
    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(analyse_and_wait, (0, 100))))

    @staticmethod
    def mended(client: Any) -> int:
        return sum(client.gather(client.map(analyse_aside, (0, 100))))


def numbers_of(part: int) -> pd.DataFrame:
    """Return a partition."""
    return pd.DataFrame({"x": np.arange(part * 40, (part + 1) * 40)})


def slow_total(frame: pd.DataFrame) -> int:
    """Work as long as the frame is."""
    time.sleep(0.005 * len(frame))
    return int(frame["x"].sum())


@pair(
    id="delayed-of-a-frame",
    report=(
        f"{DOCS}/delayed-best-practices.html#dont-call-dask-delayed-on-other-dask-collections",
        f"{DASK}/issues/4448",
    ),
    cause="few tasks",
    advice="Map the function over the partitions; dask.delayed makes one pandas frame of all.",
    wrong=("more threads", "more memory", "larger chunks"),
    also=("transfer", "gather", "skew"),
    speedup=2.0,
    sleeping=True,
)
class DelayedOfAFrame:
    @staticmethod
    def sick(client: Any) -> int:
        frame = dd.from_map(numbers_of, range(20))
        return dask.delayed(slow_total)(frame).compute()

    @staticmethod
    def mended(client: Any) -> int:
        parts = dd.from_map(numbers_of, range(20)).to_delayed()
        return sum(dask.compute(*(dask.delayed(slow_total)(part) for part in parts)))


@pair(
    id="longest-last",
    report=("https://github.com/OGGM/oggm/issues/661", f"{DASK}/issues/6956"),
    cause="skew",
    advice="Start the longest tasks first, or split them.",
    wrong=("larger chunks", "more workers", "fewer tasks"),
    speedup=1.3,
    sleeping=True,
)
class LongestLast:
    SECONDS = (*[0.15] * 60, 3.0)

    @staticmethod
    def sick(client: Any) -> int:
        return sum(client.gather(client.map(nap, range(61), LongestLast.SECONDS)))

    @staticmethod
    def mended(client: Any) -> int:
        seconds = LongestLast.SECONDS[::-1]
        return sum(client.gather(client.map(nap, range(61), seconds)))
