"""Write runs as OpenMetrics text, for Prometheus and what reads its format.

A sample per run and metric, at the time when the run started:
``promtool tsdb create-blocks-from openmetrics FILE`` adds them to a Prometheus server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from benchkit.store.schema import METRICS

#: Labels of a sample.
_LABELS = ("workload", "environment", "host", "cluster", "arm")
#: Unit -> suffix of the metric's name and factor to the base unit of Prometheus.
_UNITS = {"s": ("_seconds", 1.0), "B": ("_bytes", 1.0), "%": ("_ratio", 0.01), "USD": ("_usd", 1.0)}


def write_openmetrics(runs: pd.DataFrame, path: Path) -> None:
    """Write a gauge per metric, with a sample per successful run."""
    runs = runs[runs["outcome"] == "ok"].sort_values([*_LABELS, "started"])
    times = [f"{start.timestamp():.6f}" for start in runs["started"]]
    labels = [_labels(row) for row in runs[list(_LABELS)].to_dict("records")]
    with path.open("w", encoding="utf-8") as file:
        for name, metric in METRICS.items():
            if name not in runs or runs[name].isna().all():
                continue
            suffix, factor = _UNITS.get(metric.units, ("", 1.0))
            full_name = f"benchkit_{name}{suffix}"
            file.write(f"# TYPE {full_name} gauge\n")
            if suffix:
                file.write(f"# UNIT {full_name} {suffix[1:]}\n")
            file.write(f"# HELP {full_name} {_escaped(metric.long_name)}\n")
            previous = None
            for label, time, value in zip(labels, times, runs[name].tolist(), strict=True):
                if value == value and (label, time) != previous:
                    file.write(f"{full_name}{{{label}}} {value * factor!r} {time}\n")
                previous = label, time
        file.write("# EOF\n")


def _labels(row: dict[Any, Any]) -> str:
    known = {name: value for name, value in row.items() if pd.notna(value)}
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in known.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
