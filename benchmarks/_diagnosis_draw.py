"""Random clusters and workloads in which `_diagnosis_random` plants faults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from _diagnosis_faults import MB
from _diagnosis_plants import refill
from _diagnosis_tasks import chain, flat, graph, layer, spin, tree, uneven
from distributed import Client

__all__ = ["base", "cluster", "small"]

Run = Callable[[Client], Any]


def cluster(rng: Random, least: int = 2, most: int = 2) -> tuple[dict[str, Any], int]:
    """Return options of a cluster with a number of threads in a range, and that number."""
    n_threads = rng.randint(least, most)
    per_worker = rng.choice([n for n in (1, 1, 2) if n_threads % n == 0])
    shape = {"n_workers": n_threads // per_worker, "threads_per_worker": per_worker}
    return ({} if shape == {"n_workers": 2, "threads_per_worker": 1} else shape), n_threads


def small(rng: Random, low: int, high: int) -> dict[str, Any]:
    """Return options of two workers with a memory limit in a range, in MB."""
    return {"memory_limit": rng.randint(low, high) * MB}


def base(rng: Random, seconds: float, n_threads: int = 2, work: Callable = spin) -> Run:
    """Return a workload that keeps threads busy for about some seconds."""
    each = rng.uniform(0.04, 0.15)
    count = max(8 * n_threads, round(seconds * n_threads / each))
    kind = rng.choice(("flat", "uneven", "tree", "chains", "stages", "neighbours", "refill"))
    if kind == "uneven":
        return uneven(work, *(each * rng.uniform(0.5, 1.5) for _ in range(count)))
    if kind == "tree":
        return tree(work, round(0.85 * count), each)
    if kind == "chains":
        # Dask starts two chains a thread: of three, the first free worker gets all of the rest.
        width = n_threads * rng.choice((2, 4))
        return chain(work, -(-count // width), each, width=width)
    if kind == "refill":
        return refill(work, count, each, 3 * n_threads)
    if kind == "flat":
        return flat(work, count, each)
    n_stages, reach = rng.randint(2, 4), 1 if kind == "stages" else rng.randint(1, 3)
    width = max(6 * n_threads, count // n_stages)
    links = (lambda n: [n]) if kind == "stages" else (lambda n: [n, (n + reach) % width])
    stages = [layer(work, width, each, links if n else None) for n in range(n_stages)]
    return graph(*((f"stage{n}", rows) for n, rows in enumerate(stages)))
