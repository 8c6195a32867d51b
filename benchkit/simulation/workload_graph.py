"""The task graph of a workload, built without a cluster: the first graph that it submits."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from benchkit._compat.distributed_internals import CLIENT, Internals
from benchkit.measure.engines.engine import wait_for_result
from benchkit.measure.entrypoint import find_variant
from benchkit.measure.scale import Scale
from benchkit.simulation.cluster import new_scheduler, run_to_end
from benchkit.simulation.graph import Submission, UnsupportedGraph, VirtualGraph
from benchkit.simulation.model import ClusterShape


def workload_graph(
    workload: str,
    *,
    workloads: Sequence[str],
    params: Mapping[str, Any],
    scale: float,
    shape: ClusterShape,
    costs: Mapping[str, Sequence[Sequence[float]]],
    durations: str = "median",
    seed: int = 0,
) -> VirtualGraph:
    """Return the graph that a workload submits on a cluster of a size."""
    variant = find_variant(workload, workloads, params)
    if not shape.memory_limit:
        raise UnsupportedGraph("its size follows the memory: set memory=, as in 1GiB")
    size = Scale(
        shape.workers * shape.memory_limit, shape.workers * shape.threads, shape.workers, scale
    )
    internals = Internals(lambda: 0.0, lambda: None)
    with internals.installed():
        message = _first_message(variant, internals.new_client(_stop), size)
        keys, dependencies, producers = _tasks(internals, message)
    wanted = [keys[key] for key in message["keys"]]
    names = list(keys)
    seconds, nbytes = _costs(names, costs, durations, seed)
    return VirtualGraph(
        names,
        dependencies,
        seconds,
        nbytes,
        [Submission(list(range(len(names))), sorted(wanted))],
        producers,
        name=variant.name,
    )


class _Submitted(Exception):
    """The workload has submitted its first graph."""


def _stop(message: dict[str, Any]) -> None:
    if message["op"] == "update-graph":
        raise _Submitted(message)


def _first_message(variant: Any, client: Any, size: Scale) -> dict[str, Any]:
    import dask

    available = {"client": client, "scale": size, "seed": variant.workload.seed, **variant.params}
    step = "prepare"
    try:
        with client.as_current(), dask.config.set(scheduler="dask.distributed"):
            available["prepared"] = variant.workload.call("prepare", **available)
            step = "run"
            wait_for_result(variant.workload.call("run", **available))
    except _Submitted as submitted:
        if step == "run":
            message: dict[str, Any] = submitted.args[0]
            return message
        raise UnsupportedGraph(
            "its preparation submits tasks: simulate a kept run of it instead"
        ) from None
    except Exception as error:
        raise UnsupportedGraph(
            f"needs a real cluster ({type(error).__name__}: {error}): "
            "simulate a kept run of it instead"
        ) from None
    raise UnsupportedGraph("submits no tasks")


def _tasks(
    internals: Internals, message: dict[str, Any]
) -> tuple[dict[Any, int], list[list[int]], list[int]]:
    """Return the number of each task, its dependencies, and the tasks that produce data."""

    async def load() -> Any:
        scheduler = new_scheduler(internals)
        scheduler.client_comms[CLIENT] = _NoStream()
        update_graph = scheduler.stream_handlers["update-graph"]
        arguments = {name: value for name, value in message.items() if name != "op"}
        internals.call_handler(update_graph, client=CLIENT, **arguments)
        return scheduler

    tasks = run_to_end(load()).tasks
    keys = {key: number for number, key in enumerate(sorted(tasks, key=str))}
    ordered = [tasks[key] for key in keys]
    dependencies = [sorted(keys[other.key] for other in task.dependencies) for task in ordered]
    producers = [
        number
        for number, task in enumerate(ordered)
        if getattr(task.run_spec, "data_producer", False)
    ]
    return keys, dependencies, producers


class _NoStream:
    """The scheduler's stream to the client; its messages are dropped."""

    def send(self, *messages: Any) -> None:
        pass


def _costs(
    keys: Sequence[Any], costs: Mapping[str, Sequence[Sequence[float]]], durations: str, seed: int
) -> tuple[list[float], list[int]]:
    from dask.utils import key_split

    draws = random.Random(seed)
    seconds, nbytes = [], []
    for key in keys:
        prefix = str(key_split(key))
        if prefix not in costs:
            raise UnsupportedGraph(
                f"tasks {prefix!r}: no kept run has their durations: measure the workload again"
            )
        pairs = costs[prefix]
        pair = draws.choice(pairs) if durations == "resample" else pairs[len(pairs) // 2]
        seconds.append(float(pair[0]))
        nbytes.append(int(pair[1]))
    return seconds, nbytes
