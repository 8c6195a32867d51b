"""A Grafana dashboard of Dask's metrics, and runs as annotations on it and as links to one.

The dashboard is the file ``grafana.json``, as Grafana imports and exports it. Its queries use the
metric names that Dask exposes; a test compares them with a real scrape. A link is a URL template
that is filled with fields of the run.
"""

from __future__ import annotations

import math
import string
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from benchkit.errors import UsageError, did_you_mean
from benchkit.measure.settings import setting
from benchkit.store.run import Run
from benchkit.text import escape

#: Tag of annotations that represent runs; the dashboard shows annotations with this tag.
ANNOTATION_TAG = "benchkit"
LINK_VARIABLE = "BENCHKIT_GRAFANA"
#: Attributes of a run that a template may use, in addition to its start and end.
_ATTRIBUTES = ("id", "workload", "environment", "experiment", "arm", "host", "cluster", "outcome")
_FIELDS = ("from_ms", "to_ms", "scheduler", *_ATTRIBUTES)


def grafana_board() -> str:
    """Return a dashboard of scheduler and workers as JSON that Grafana imports.

    Its variables are the data source, the jobs that scrape the cluster, and the workers. Runs that
    were posted as annotations with the tag ``benchkit`` are marked on every panel.
    """
    return Path(__file__).with_suffix(".json").read_text(encoding="utf-8").rstrip()


def annotation(run: Run) -> dict[str, Any]:
    """Return a run as an annotation for Grafana's HTTP API."""
    attrs = run.tree.attrs
    if "clock_on" not in attrs:
        raise UsageError(f"run {run.id}: has no time range, because its clock was never started")
    begin, end = float(attrs["clock_on"]), float(attrs.get("clock_off", attrs["clock_on"]))
    end = end if math.isfinite(end) else begin
    tags = [ANNOTATION_TAG, run.workload, str(attrs.get("environment") or ""), run.outcome]
    # Grafana renders the text as HTML.
    lines = [run.workload, run.outcome, run.error, run.id]
    return {
        "time": math.floor(1000 * begin),
        "timeEnd": math.ceil(1000 * end),
        "tags": [tag for tag in tags if tag],
        "text": "<br>".join(escape(line) for line in lines if line),
    }


def grafana_link(run: Run, template: str | None = None) -> str:
    """Return the URL of a dashboard at the time of a run; empty if there is no template."""
    if template is None:
        template = chosen_template()
    else:
        check_template(template)
    if not template:
        return ""
    attrs = run.tree.attrs
    begin, end = (float(attrs.get(name, math.nan)) for name in ("clock_on", "clock_off"))
    if not (math.isfinite(begin) and math.isfinite(end)):
        return ""
    values = {name: str(attrs.get(name, "")) for name in _ATTRIBUTES}
    values |= {"from_ms": str(math.floor(1000 * begin)), "to_ms": str(math.ceil(1000 * end))}
    values["scheduler"] = _scheduler(run)
    return template.format(**{name: quote(value, safe="") for name, value in values.items()})


def chosen_template() -> str:
    """Return the configured URL template of a Grafana dashboard."""
    template = str(setting("grafana") or "")
    if template:
        check_template(template)
    return template


def check_template(template: str) -> None:
    """Check that a text is a valid URL template."""
    example = "https://grafana.example/d/dask/dask?from={from_ms}&to={to_ms}"
    try:
        fields = [field[1:] for field in string.Formatter().parse(template)]
        parts = urlsplit(template)
    except ValueError as error:
        raise UsageError(
            f"{LINK_VARIABLE} {template!r}: {error}; expected, for example, {example}"
        ) from error
    if parts.scheme not in ("http", "https") or not parts.netloc or "{" in parts.netloc:
        raise UsageError(f"{LINK_VARIABLE} {template!r}: must be a URL; example: {example}")
    for name, spec, conversion in fields:
        if name is not None and name not in _FIELDS:
            hint = did_you_mean(name, _FIELDS, f"available: {', '.join(_FIELDS)}")
            raise UsageError(f"{LINK_VARIABLE}: unknown field {{{name}}}: {hint}")
        if spec or conversion:
            raise UsageError(f"{LINK_VARIABLE}: field {{{name}}} takes no format specification")


def _scheduler(run: Run) -> str:
    """Return ``host:port`` of the scheduler as labelled in Prometheus; empty if not recorded."""
    data = run.prometheus()
    if "role" not in data.coords:
        return ""
    instances = data["instance"].values[data["role"].values == "scheduler"]
    return str(instances[0]) if len(instances) else ""
