"""The constants of a virtual cluster: hardware, and cost of the software around state machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

_LOOPBACK = "LocalCluster with 4 to 10 workers of one thread on a 2-core machine, Dask 2026.8"
_DASK = "source of distributed"
#: Largest number of workers, and of threads of each; a worker takes 35 kB and 1 ms.
MAX_SIZE = 10_000
#: Seconds that are no processor time.
_NOT_SCALED = ("latency", "scheduler_batch", "worker_batch", "timer_delay", "busy_retry")


def _constant(default: float, unit: str, meaning: str, source: str) -> Any:
    return field(default=default, metadata={"unit": unit, "meaning": meaning, "source": source})


@dataclass(frozen=True)
class Model:
    """Constants of the hardware and of the software around the state machines.

    Each field has metadata: unit, meaning, and source of the default.
    """

    bandwidth: float = _constant(1e9, "B/s", "each way of a worker's network link", _LOOPBACK)
    latency: float = _constant(200e-6, "s", "one way, network and kernel", _LOOPBACK)
    scale: float = _constant(
        1.0, "1", "cost of event loops relative to these constants", _LOOPBACK)  # fmt: skip
    batch_read: float = _constant(100e-6, "s", "read a batch of messages", _LOOPBACK)
    message_read: float = _constant(20e-6, "s", "unpack a message", _LOOPBACK)
    message_write: float = _constant(20e-6, "s", "pack a message", _LOOPBACK)
    batch_write: float = _constant(80e-6, "s", "write a batch of messages", _LOOPBACK)
    scheduler_batch: float = _constant(
        0.005, "s", "shortest time between two batches of the scheduler", _DASK)  # fmt: skip
    worker_batch: float = _constant(
        0.002, "s", "shortest time between two batches of a worker", _DASK)  # fmt: skip
    timer_delay: float = _constant(
        700e-6, "s", "lateness of a timer; epoll counts milliseconds", _LOOPBACK)  # fmt: skip
    busy_retry: float = _constant(
        0.15, "s", "wait after a worker refused a request for results", _DASK)  # fmt: skip
    execute: float = _constant(300e-6, "s", "start a task in a worker's event loop", _LOOPBACK)
    thread_switch: float = _constant(
        60e-6, "s", "until a thread starts, and until the loop notices its end", _LOOPBACK
    )
    gather: float = _constant(
        230e-6, "s", "request for results, in the event loops of both ends", _LOOPBACK)  # fmt: skip
    per_byte: float = _constant(
        0.0, "s/B", "serialize and copy, in the event loops of both ends", _LOOPBACK)  # fmt: skip
    heartbeat: float = _constant(500e-6, "s", "heartbeat, in a worker's event loop", _LOOPBACK)
    scheduler_call: float = _constant(4e-6, "s", "call of a handler of the scheduler", _LOOPBACK)
    scheduler_transition: float = _constant(
        18e-6, "s", "transition of a task on the scheduler", _LOOPBACK)  # fmt: skip
    balance_per_worker: float = _constant(
        10e-6, "s", "each worker in a round of work stealing", _LOOPBACK)  # fmt: skip
    update_per_task: float = _constant(
        28e-6, "s", "each task of a new graph, on the scheduler", _LOOPBACK)  # fmt: skip
    worker_call: float = _constant(12e-6, "s", "call of a handler of a worker", _LOOPBACK)
    worker_transition: float = _constant(
        15e-6, "s", "transition of a task on a worker", _LOOPBACK)  # fmt: skip
    baseline_memory: float = _constant(
        100 * 2**20, "B", "memory of a worker's process without results", _LOOPBACK)  # fmt: skip
    disk_bandwidth: float = _constant(500e6, "B/s", "spill and read back results", "assumed")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Model:
        """Return a model from values by name."""
        known = {entry.name for entry in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"no constant {name!r}: known are {', '.join(sorted(known))}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise ValueError(f"{name}={value!r}: must be a number of at least 0")
        for name in ("bandwidth", "disk_bandwidth"):
            if values.get(name) == 0:
                raise ValueError(f"{name}=0: must be above 0")
        return replace(cls(), **{name: float(value) for name, value in values.items()})

    def scaled(self) -> Model:
        """Return the model with `scale` multiplied into the costs of event loops."""
        costs = {
            entry.name: getattr(self, entry.name) * self.scale
            for entry in fields(self)
            if entry.metadata["unit"] == "s" and entry.name not in _NOT_SCALED
        }
        return replace(self, scale=1.0, **costs)

    def to_dict(self) -> dict[str, float]:
        """Return the values by name."""
        return asdict(self)


@dataclass(frozen=True)
class ClusterShape:
    """Size of a virtual cluster."""

    workers: int = 2  # Number of workers
    threads: int = 1  # Threads of each worker
    # Memory limit of each worker in B: above 60 % of it results are spilled; 0 for no limit.
    memory_limit: int = 0
    # Whether scheduler and workers share one process, as with `processes=False`.
    shared_loop: bool = False

    def __post_init__(self) -> None:
        for name, lowest in (("workers", 1), ("threads", 1), ("memory_limit", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < lowest:
                raise ValueError(f"{name}={value!r}: must be a whole number of at least {lowest}")
            if name != "memory_limit" and value > MAX_SIZE:
                raise ValueError(f"{name}={value}: more than {MAX_SIZE} cannot be simulated")
