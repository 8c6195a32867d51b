"""Scenarios and the clusters that they run on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Scenario:
    """One body with its cluster, and the metrics that it says the truth of."""

    name: str
    body: Callable[[Any, Any], dict[str, Any] | None]
    cluster: dict[str, Any]
    metrics: tuple[str, ...]
    before: Callable[[Any], Any] | None
    after: Callable[[Any, Any], dict[str, Any]] | None
    on: tuple[str, ...]


SCENARIOS: dict[str, Scenario] = {}
PROCESSES = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
THREADED = {"n_workers": 1, "threads_per_worker": 4, "processes": True}
#: Begins without workers; `measure` lets it adapt.
ADAPTIVE = {"n_workers": 0, "threads_per_worker": 1, "processes": True, "adapt": (0, 2)}
IN_PROCESS = {"n_workers": 4, "threads_per_worker": 1, "processes": False}


def scenario(
    *metrics: str,
    cluster: dict[str, Any] = PROCESSES,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any, Any], dict[str, Any]] | None = None,
    on: tuple[str, ...] = ("local", "hosts"),
) -> Callable[[Any], Any]:
    """Register a body; `before` runs ahead of the clock and its result is the second argument.

    `on` says whether it runs on a local cluster, on the hosts of `validation.hosts`, or on both.
    """

    def register(body: Any) -> Any:
        facts = (cluster, metrics, before, after, on)
        SCENARIOS[body.__name__] = Scenario(body.__name__, body, *facts)
        return body

    return register
