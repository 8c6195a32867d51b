"""Build the group `/prometheus` of a run file from recorded Prometheus data.

The group has a variable per metric over time, instance and the labels of the metric. Values are
unchanged: counters count from the start of their process.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from benchkit.measure.recording import Recording
from benchkit.store.build.shape import Window
from benchkit.store.schema import COORDINATES
from benchkit.values import clean_text

#: Suffix of a metric's name -> unit, as Prometheus' naming rules define it (base units).
_UNITS = {
    "seconds": "s",
    "s": "s",
    "bytes": "B",
    "percent": "%",
    "celsius": "degC",
    "volts": "V",
    "joules": "J",
}
#: Dimension and coordinate names of the group; labels and metrics with such a name are renamed.
_RESERVED_NAMES = {"time", "instance", "address", "name", "role"}


def unit_of(metric: str) -> str:
    """Return the unit that is the suffix of a metric's name.

    Examples
    --------
    >>> unit_of("dask_worker_spill_time_seconds_total"), unit_of("dask_scheduler_tasks")
    ('s', '1')
    """
    return _UNITS.get(metric.removesuffix("_total").rpartition("_")[2], "1")


@dataclass
class _Metric:
    """One metric and its series; each series has labels, and values by row of time."""

    help: str = ""
    kind: str = ""
    series: dict[tuple[tuple[str, str], ...], _Series] = field(default_factory=dict)

    def values_of(self, labels: dict[str, str]) -> dict[int, float]:
        """Return the values of the series with these labels: a dict for the caller to fill."""
        return self.series.setdefault(tuple(sorted(labels.items())), _Series(labels)).values


@dataclass
class _Series:
    labels: dict[str, str]
    values: dict[int, float] = field(default_factory=dict)

    @property
    def instance(self) -> str:
        return self.labels.get("instance", "")


def assemble_prometheus(recording: Recording, window: Window) -> dict[str, xr.Dataset]:
    """Return the group `prometheus` of a run file."""
    if not recording.last("prometheus"):
        return {}
    try:
        times, metrics, attrs = _read_response(recording.last("prometheus"))
        endpoints = _match_endpoints(recording.rows("endpoints"), metrics)
        dataset = _dataset(window.seconds(times), metrics, endpoints, attrs)
    except (KeyError, TypeError, ValueError, IndexError, zlib.error) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        recording.problems.append(f"prometheus: recorded data cannot be read: {reason}")
    else:
        return {"prometheus": dataset}
    return {}


#: Times in Unix s of the scheduler's clock, metrics by name, attributes of the Dataset.
_Content = tuple[list[float], dict[str, _Metric], dict[str, Any]]


def _read_response(recorded: dict[str, Any]) -> _Content:
    result = json.loads(zlib.decompress(recorded["answer"]))["data"]["result"]
    moments = sorted({float(moment) for series in result for moment, _ in series["values"]})
    row = {moment: index for index, moment in enumerate(moments)}
    metrics: dict[str, _Metric] = defaultdict(_Metric)
    for series in result:
        labels = dict(series["metric"])
        values = metrics[labels.pop("__name__")].values_of(labels)
        values.update({row[float(moment)]: float(value) for moment, value in series["values"]})
    for name, metric in metrics.items():
        about = recorded["metadata"].get(name) or {}
        metric.help, metric.kind = str(about.get("help", "")), str(about.get("type", ""))
    attrs = {name: recorded[name] for name in ("server", "selector", "step")}
    times = [moment + recorded["ahead"] for moment in moments]
    return times, metrics, {"source": "Prometheus", **attrs}


# -- shaping --------------------------------------------------------------------------------------


def _dataset(
    times: np.ndarray,
    metrics: dict[str, _Metric],
    endpoints: dict[str, dict[str, str]],
    attrs: dict[str, Any],
) -> xr.Dataset:
    target_labels = _target_labels(metrics)
    roles = _roles(metrics, endpoints)
    shared = {"instance", *target_labels}
    own_labels = {
        name: sorted({k for series in metric.series.values() for k in series.labels} - shared)
        for name, metric in metrics.items()
    }
    # Values of each label over all metrics that have the label: they share one dimension.
    values: dict[str, set[str]] = defaultdict(set)
    for name, metric in metrics.items():
        for label in own_labels[name]:
            values[label] |= {series.labels.get(label, "") for series in metric.series.values()}
    axes = {label: sorted(texts, key=_sort_key) for label, texts in values.items()}
    axes["instance"] = sorted(roles, key=lambda instance: (roles[instance], instance))
    reserved = {*_RESERVED_NAMES, *metrics}
    dims = {label: _free_name(label, reserved) for label in values} | {"instance": "instance"}

    dataset = xr.Dataset(
        attrs={k: clean_text(v) if isinstance(v, str) else v for k, v in attrs.items()}
    )
    for name, metric in sorted(metrics.items()):
        instances = {series.instance for series in metric.series.values()}
        # A scheduler metric gets no dimension `instance`: with 300 workers it would be 300 x NaN.
        is_scheduler = len(instances) == 1 and roles[min(instances)] == "scheduler"
        over = [*([] if is_scheduler else ["instance"]), *own_labels[name]]
        data = _to_array(metric, len(times), {label: axes[label] for label in over})
        about = {
            "units": unit_of(name),
            "long_name": clean_text((metric.help.splitlines() or [""])[0] or name),
            "source": attrs["source"],
            **({"type": clean_text(metric.kind)} if metric.kind else {}),
            **({"instance": clean_text(min(instances))} if is_scheduler else {}),
        }
        variable = (("time", *(dims[label] for label in over)), data, about)
        dataset[_free_name(name, {*_RESERVED_NAMES, *dims.values()})] = variable
    coords = {dims[label]: _coordinate(dims[label], texts, label) for label, texts in axes.items()}
    texts = [roles[instance] for instance in axes["instance"]]
    coords["role"] = _coordinate("instance", texts, "scheduler or worker")
    for field_name, text in (("address", "Dask's address"), ("name", "Dask's name of the process")):
        texts = [endpoints.get(instance, {}).get(field_name, "") for instance in axes["instance"]]
        coords[field_name] = _coordinate("instance", texts, text)
    for label, by_instance in target_labels.items():
        texts = [by_instance.get(instance, "") for instance in axes["instance"]]
        name = _free_name(label, {*reserved, *dims.values()})
        coords[name] = _coordinate("instance", texts, f"label {label} of the target")
    (time,) = COORDINATES["time"]
    attrs = {"units": time.units, "long_name": time.long_name}
    coords["time"] = ("time", np.asarray(times, float), attrs)
    return dataset.assign_coords(coords)


def _to_array(metric: _Metric, n_times: int, axes: dict[str, list[str]]) -> np.ndarray:
    """Return the values of a metric over time and the labels of `axes`; missing values are NaN."""
    index = {label: {text: i for i, text in enumerate(texts)} for label, texts in axes.items()}
    data = np.full((n_times, *map(len, axes.values())), np.nan)
    for series in metric.series.values():
        position = (index[label][series.labels.get(label, "")] for label in axes)
        indices: tuple[Any, ...] = (list(series.values), *position)
        data[indices] = list(series.values.values())
    return data


def _coordinate(
    dim: str, texts: list[str], long_name: str
) -> tuple[str, np.ndarray, dict[str, str]]:
    return dim, np.array([clean_text(text) for text in texts], object), {"long_name": long_name}


def _free_name(name: str, reserved: set[str]) -> str:
    """Return a name that is valid in a file and not in `reserved`."""
    name = re.sub(r"[^\w:.-]", "_", name)
    return f"{name}_label" if name in reserved else name


def _sort_key(text: str) -> tuple[float, str]:
    """Return a sort key: text first, then numbers (buckets, multipliers) by value."""
    try:
        number = float(text)
    except ValueError:
        number = -math.inf
    return (-math.inf if math.isnan(number) else number, text)


def _match_endpoints(
    endpoints: list[dict[str, str]], metrics: dict[str, _Metric]
) -> dict[str, dict[str, str]]:
    """Return the recorded endpoint of each instance; match by port where host names differ."""
    by_name = {endpoint["instance"]: endpoint for endpoint in endpoints}
    by_port: dict[str, list[dict[str, str]]] = defaultdict(list)
    for name, endpoint in by_name.items():
        by_port[name.rpartition(":")[2]].append(endpoint)
    matched = {}
    for instance in {series.instance for series in _all_series(metrics)}:
        same_port = by_port[instance.rpartition(":")[2]]
        if instance in by_name:
            matched[instance] = by_name[instance]
        elif len(same_port) == 1:
            matched[instance] = same_port[0]
    return matched


def _roles(metrics: dict[str, _Metric], endpoints: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the role of each instance, from its endpoint or else from the names of its metrics."""
    roles: dict[str, str] = {}
    for name, metric in metrics.items():
        in_name = next((role for role in ("scheduler", "worker") if f"_{role}_" in name), "")
        for instance in {series.instance for series in metric.series.values()}:
            recorded = endpoints.get(instance, {}).get("role", "")
            roles[instance] = recorded or roles.get(instance) or in_name
    return roles


def _target_labels(metrics: dict[str, _Metric]) -> dict[str, dict[str, str]]:
    """Return the labels that identify a target, each with its value by instance.

    Such a label has the same value on all series of an instance; other labels (`state`, `type`)
    distinguish the series of one metric.
    """
    all_series = _all_series(metrics)
    result: dict[str, dict[str, str]] = {}
    for label in {label for series in all_series for label in series.labels} - {"instance"}:
        values: dict[str, set[str | None]] = defaultdict(set)
        for series in all_series:
            values[series.instance].add(series.labels.get(label))
        if all(len(texts) == 1 for texts in values.values()):
            result[label] = {
                instance: next(iter(texts)) or "" for instance, texts in values.items()
            }
    return result


def _all_series(metrics: dict[str, _Metric]) -> list[_Series]:
    return [series for metric in metrics.values() for series in metric.series.values()]
