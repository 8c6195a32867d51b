"""What metrics mean, in a line: the same words wherever a page shows one."""

from __future__ import annotations

from collections.abc import Iterable

from benchkit.store.schema import METRICS

__all__ = ["metric_term", "metric_terms"]

_UNITS = {"s": "seconds", "B": "bytes", "%": "per cent", "1": "a number", "USD": "US dollars"}
_BETTER = {"lower": "less is better", "higher": "more is better"}


def metric_term(name: str) -> str:
    """Return the long name of a metric, its unit, where it comes from, and what is better.

    Examples
    --------
    >>> metric_term("memory_mean")
    'cluster process memory, mean over time; bytes, from heartbeats; less is better'
    """
    return f"{METRICS[name].long_name}; {_told(name)}"


def _told(name: str) -> str:
    metric = METRICS[name]
    told = f"{_UNITS.get(metric.units, metric.units)}, from {metric.source}"
    return "; ".join(part for part in (told, _BETTER.get(metric.better, "")) if part)


def metric_terms(names: Iterable[str]) -> dict[str, str]:
    """Return long name -> unit, source and what is better, of metrics in their order."""
    return {METRICS[name].long_name: _told(name) for name in names if name in METRICS}
