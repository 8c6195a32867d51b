"""Build the group `/prometheus` of a run file from recorded Prometheus data.

The group has a variable per metric over time, instance and the labels of the metric. The answer of
a server and the texts scraped from processes give the same variables. Values are kept as exposed:
counters count from the start of their process.
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

from benchkit.formatting import clean_text
from benchkit.measure.recording import Recording
from benchkit.store.build.shape import Window
from benchkit.store.schema import COORDINATES

__all__ = ["assemble_prometheus", "unit_of"]

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
_NOT_OURS = ("python_", "scrape_")
#: Dimension and coordinate names of the group, which a label or a metric must not take.
_TAKEN = {"time", "instance", "address", "name", "role"}


def unit_of(metric: str) -> str:
    """Return the unit that a metric's name ends in; "1" for counts and for names without a unit.

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

    def of(self, labels: dict[str, str]) -> dict[int, float]:
        """Return the values of the series with these labels: a dict for the caller to fill."""
        key = tuple(sorted(labels.items()))
        if key not in self.series:
            self.series[key] = _Series(labels)
        return self.series[key].values


@dataclass
class _Series:
    labels: dict[str, str]
    values: dict[int, float] = field(default_factory=dict)

    @property
    def instance(self) -> str:
        return self.labels.get("instance", "")


def assemble_prometheus(recording: Recording, window: Window) -> dict[str, xr.Dataset]:
    """Return the group `prometheus` in a dict, or an empty dict if no data can be kept.

    Parameters
    ----------
    recording : Recording
        As read from disk. Data that cannot be read adds a line to its `problems`.
    window : Window
        The measured interval; times are seconds since its start.
    """
    try:
        if recording.last("prometheus"):
            times, metrics, attrs = _of_server(recording.last("prometheus"))
        elif recording.rows("scrapes"):
            times, metrics, attrs = _of_scrapes(recording)
        else:
            return {}
        ends = recording.rows("endpoints")
        dataset = _dataset(window.seconds(times), metrics, _known(ends, metrics), attrs)
    except ImportError:
        recording.problems.append(
            "prometheus: prometheus-client is not installed, so what was scraped cannot be read: "
            "pip install 'benchkit[prometheus]'"
        )
    except (KeyError, TypeError, ValueError, IndexError, zlib.error) as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        recording.problems.append(f"prometheus: what was kept cannot be read: {what}")
    else:
        return {"prometheus": dataset}
    return {}


_Read = tuple[list[float], dict[str, _Metric], dict[str, Any]]


def _of_server(kept: dict[str, Any]) -> _Read:
    result = json.loads(zlib.decompress(kept["answer"]))["data"]["result"]
    moments = sorted({float(moment) for series in result for moment, _ in series["values"]})
    row = {moment: index for index, moment in enumerate(moments)}
    metrics: dict[str, _Metric] = defaultdict(_Metric)
    for series in result:
        labels = dict(series["metric"])
        values = metrics[labels.pop("__name__")].of(labels)
        values.update({row[float(moment)]: float(value) for moment, value in series["values"]})
    for name, metric in metrics.items():
        about = kept["metadata"].get(name) or {}
        metric.help, metric.kind = str(about.get("help", "")), str(about.get("type", ""))
    attrs = {name: kept[name] for name in ("server", "selector", "step")}
    times = [moment + kept["ahead"] for moment in moments]
    return times, metrics, {"source": "Prometheus", **attrs}


def _of_scrapes(recording: Recording) -> _Read:
    from prometheus_client.parser import text_string_to_metric_families

    rows = recording.rows("scrapes")
    ahead = recording.last("scrape_clock", {}).get("ahead", 0.0)
    moments = sorted({float(moment) for moment, _, _ in rows})
    row = {moment: index for index, moment in enumerate(moments)}
    metrics: dict[str, _Metric] = defaultdict(_Metric)
    for moment, instance, text in rows:
        said = zlib.decompress(text).decode("utf-8", "replace")
        for family in text_string_to_metric_families(said):
            if family.name.startswith(_NOT_OURS):
                continue
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                metric = metrics[sample.name]
                metric.help, metric.kind = family.documentation, family.type
                values = metric.of({**sample.labels, "instance": instance})
                values[row[float(moment)]] = float(sample.value)
    attrs = {"source": "/metrics of scheduler and workers"}
    return [moment + ahead for moment in moments], metrics, attrs


# -- shaping --------------------------------------------------------------------------------------


def _dataset(
    times: Any, metrics: dict[str, _Metric], ends: dict[str, Any], attrs: dict[str, Any]
) -> xr.Dataset:
    targets = _labels_of_targets(metrics)
    roles = _roles(metrics, ends)
    own = {
        name: sorted(
            {label for series in metric.series.values() for label in series.labels}.difference(
                targets, ["instance"]
            )
        )
        for name, metric in metrics.items()
    }
    # Values of each label over all metrics that have the label: they share one dimension.
    values: dict[str, set[str]] = defaultdict(set)
    for name, metric in metrics.items():
        for label in own[name]:
            values[label] |= {one.labels.get(label, "") for one in metric.series.values()}
    known = {label: sorted(told, key=_by_number) for label, told in values.items()}
    known["instance"] = sorted(roles, key=lambda instance: (roles[instance], instance))
    dims = {label: _free(label, {*_TAKEN, *metrics}) for label in values} | {"instance": "instance"}

    dataset = xr.Dataset(attrs={name: _plain(value) for name, value in attrs.items()})
    for name, metric in sorted(metrics.items()):
        seen = {series.instance for series in metric.series.values()}
        # A scheduler metric gets no dimension `instance`: with 300 workers it would be 300 x NaN.
        alone = len(seen) == 1 and roles[min(seen)] == "scheduler"
        over = [*([] if alone else ["instance"]), *own[name]]
        data = _laid_out(metric, len(times), {label: known[label] for label in over})
        about = {
            "units": unit_of(name),
            "long_name": clean_text((metric.help.splitlines() or [""])[0] or name),
            "source": attrs["source"],
            **({"type": clean_text(metric.kind)} if metric.kind else {}),
            **({"instance": clean_text(min(seen))} if alone else {}),
        }
        variable = (("time", *(dims[label] for label in over)), data, about)
        dataset[_free(name, {*_TAKEN, *dims.values()})] = variable
    instances = known["instance"]
    coords = {dims[label]: _texts(dims[label], told, label) for label, told in known.items()}
    coords["role"] = _texts("instance", [roles[one] for one in instances], "scheduler or worker")
    for fact, text in (("address", "Dask's address"), ("name", "Dask's name of the process")):
        told = [str(ends.get(one, {}).get(fact, "")) for one in instances]
        coords[fact] = _texts("instance", told, text)
    for label, by_instance in targets.items():
        name = _free(label, {*_TAKEN, *metrics, *dims.values()})
        told = [by_instance.get(one, "") for one in instances]
        coords[name] = _texts("instance", told, f"label {label} of the target")
    ((_, _, units, text),) = COORDINATES["time"]
    coords["time"] = ("time", np.asarray(times, float), {"units": units, "long_name": text})
    return dataset.assign_coords(coords)


def _laid_out(metric: _Metric, n_times: int, known: dict[str, list[str]]) -> np.ndarray:
    """Return the values of a metric over time and the labels of `known`; missing values are NaN."""
    place = {label: {told: i for i, told in enumerate(all_)} for label, all_ in known.items()}
    data = np.full((n_times, *map(len, known.values())), np.nan)
    for series in metric.series.values():
        where: Any = tuple(place[label][series.labels.get(label, "")] for label in known)
        data[(list(series.values), *where)] = list(series.values.values())
    return data


def _texts(dim: str, told: list[str], text: str) -> tuple[str, np.ndarray, dict[str, str]]:
    return dim, np.array([clean_text(one) for one in told], object), {"long_name": text}


def _free(name: str, taken: set[str]) -> str:
    """Return a name that is valid in a file and not in `taken`."""
    name = re.sub(r"[^\w:.-]", "_", name)
    return f"{name}_label" if name in taken else name


def _by_number(text: str) -> tuple[float, str]:
    """Return a sort key: text first, then numbers (buckets, multipliers) by value."""
    try:
        number = float(text)
    except ValueError:
        number = -math.inf
    return (-math.inf if math.isnan(number) else number, text)


def _plain(value: Any) -> Any:
    return clean_text(value) if isinstance(value, str) else value


def _known(ends: list[dict[str, str]], metrics: dict[str, _Metric]) -> dict[str, dict[str, str]]:
    """Return the cluster's facts by instance; match by port if the server names hosts otherwise."""
    by_name = {end["instance"]: end for end in ends}
    by_port: dict[str, list[dict[str, str]]] = defaultdict(list)
    for name, end in by_name.items():
        by_port[name.rpartition(":")[2]].append(end)
    known = {}
    for instance in {one.instance for metric in metrics.values() for one in metric.series.values()}:
        same_port = by_port[instance.rpartition(":")[2]]
        if instance in by_name:
            known[instance] = by_name[instance]
        elif len(same_port) == 1:
            known[instance] = same_port[0]
    return known


def _roles(metrics: dict[str, _Metric], ends: dict[str, Any]) -> dict[str, str]:
    """Return the role of each instance, from the cluster or else from the names of its metrics."""
    roles: dict[str, str] = {}
    for name, metric in metrics.items():
        told = next((role for role in ("scheduler", "worker") if f"_{role}_" in name), "")
        for instance in {series.instance for series in metric.series.values()}:
            known = ends.get(instance, {}).get("role", "")
            roles[instance] = known or roles.get(instance) or told
    return roles


def _labels_of_targets(metrics: dict[str, _Metric]) -> dict[str, dict[str, str]]:
    """Return the labels that identify a target, each with its value by instance.

    Such a label has the same value on all series of an instance; other labels (`state`, `type`)
    distinguish the series of one metric.
    """
    every = [series for metric in metrics.values() for series in metric.series.values()]
    found: dict[str, dict[str, str]] = {}
    for label in {label for series in every for label in series.labels} - {"instance"}:
        told: dict[str, set[str | None]] = defaultdict(set)
        for series in every:
            told[series.instance].add(series.labels.get(label))
        if all(len(one) == 1 for one in told.values()):
            found[label] = {instance: next(iter(one)) or "" for instance, one in told.items()}
    return found
