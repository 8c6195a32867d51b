"""A Grafana dashboard of Dask's metrics, as JSON to import; benchkit's runs are annotations on it.

Built with Grafana's SDK. The queries use the metric names that Dask exposes; a test compares them
with a real scrape.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from benchkit.errors import MissingExtra, UsageError
from benchkit.show.escape import escape
from benchkit.store.run import Run

__all__ = ["ANNOTATION_TAG", "BOARD_UID", "annotation", "grafana_board"]

#: Tag of annotations that represent runs.
ANNOTATION_TAG = "benchkit"
BOARD_UID = "benchkit-dask"
_BYTES, _BYTES_PER_S, _SECONDS, _COUNT, _PER_S = "bytes", "binBps", "s", "short", "cps"
#: Filters of the queries: the selected jobs, and for worker metrics also the selected workers.
_JOB, _WORKER = 'job=~"$job"', 'job=~"$job",instance=~"$worker"'
_WIDTH, _HEIGHT = 8, 8  # of 24 columns


@dataclass(frozen=True)
class _Panel:
    """A panel: its title, its unit, and queries with the legend of each."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stacked: bool = False
    about: str = ""


def _panel(title: str, unit: str, query: str, legend: str, **options: Any) -> _Panel:
    return _Panel(title, unit, ((query, legend),), **options)


_ROWS: dict[str, tuple[_Panel, ...]] = {
    "Cluster": (
        _Panel(
            "Workers",
            _COUNT,
            (
                (f"sum by (state) (dask_scheduler_workers{{{_JOB}}})", "{{state}}"),
                (f"sum(dask_scheduler_desired_workers{{{_JOB}}})", "desired"),
            ),
        ),
        _panel("Tasks by state", _COUNT, f"sum by (state) (dask_scheduler_tasks{{{_JOB}}})",
               "{{state}}", stacked=True),
        _panel("Tasks finished", _PER_S,
               "sum(rate(dask_scheduler_prefix_state_totals_total"
               f'{{{_JOB},state="memory"}}[$__rate_interval]))', "finished"),
    ),
    "Where the time goes": (
        _panel("Computing, by kind of task", _SECONDS,
               "topk(12, sum by (task_prefix_name) (rate("
               f"dask_scheduler_tasks_compute_seconds_total{{{_JOB}}}[$__rate_interval])))",
               "{{task_prefix_name}}", stacked=True,
               about="Thread-seconds a second: 8 means that eight threads were busy."),
        _panel("Transferring, by kind of task", _SECONDS,
               "topk(12, sum by (task_prefix_name) (rate("
               f"dask_scheduler_tasks_transfer_seconds_total{{{_JOB}}}[$__rate_interval])))",
               "{{task_prefix_name}}", stacked=True,
               about="Thread-seconds a second that tasks waited for their dependencies."),
        _panel("CPU of processes", _COUNT,
               f"rate(process_cpu_seconds_total{{{_WORKER}}}[$__rate_interval])", "{{instance}}",
               about="Cores in use."),
    ),
    "Memory": (
        _panel("Memory of all workers", _BYTES,
               f"sum by (type) (dask_worker_memory_bytes{{{_WORKER}}})", "{{type}}", stacked=True,
               about="Spilled data are on disk."),
        _panel("Process memory by worker", _BYTES,
               f'sum by (instance) (dask_worker_memory_bytes{{{_WORKER},type!="spilled"}})',
               "{{instance}}"),
        _panel("Results in memory, by kind of task", _BYTES,
               "topk(12, sum by (task_prefix_name) "
               f"(dask_scheduler_tasks_output_bytes{{{_JOB}}}))",
               "{{task_prefix_name}}", stacked=True),
    ),
    "Between workers, and to disk": (
        _panel("Sent by workers", _BYTES_PER_S,
               f"rate(dask_worker_transfer_outgoing_bytes_total{{{_WORKER}}}[$__rate_interval])",
               "{{instance}}"),
        _Panel("Transfers under way", _COUNT, (
            (f"sum(dask_worker_transfer_incoming_count{{{_WORKER}}})", "incoming"),
            (f"sum(dask_worker_transfer_outgoing_count{{{_WORKER}}})", "outgoing"),
        )),
        _panel("Spilling", _BYTES_PER_S,
               "sum by (activity) (rate(dask_worker_spill_bytes_total"
               f'{{{_WORKER},activity=~"disk.*"}}[$__rate_interval]))', "{{activity}}"),
    ),
    "Health": (
        _Panel("Longest tick of an event loop", _SECONDS, (
            (f"max(dask_scheduler_tick_duration_maximum_seconds{{{_JOB}}})", "scheduler"),
            (f"dask_worker_tick_duration_maximum_seconds{{{_WORKER}}}", "{{instance}}"),
        ), about="Since the last scrape, by whomever: two scrapers take it from each other."),
        _panel("Latency of workers", _SECONDS, f"dask_worker_latency_seconds{{{_WORKER}}}",
               "{{instance}}"),
        _Panel("Workers that came and went", _COUNT, (
            (f"sum(increase(dask_scheduler_workers_added_total{{{_JOB}}}[$__rate_interval]))",
             "came"),
            (f"sum(increase(dask_scheduler_workers_removed_total{{{_JOB}}}[$__rate_interval]))",
             "went"),
        )),
    ),
}  # fmt: skip


def grafana_board() -> str:
    """Return a dashboard of scheduler and workers as JSON that Grafana imports.

    Its variables are the data source, the jobs that scrape the cluster, and the workers. Runs that
    were posted as annotations with the tag ``benchkit`` are marked on every panel.

    Raises
    ------
    MissingExtra
        grafana-foundation-sdk is not installed.
    """
    try:
        from grafana_foundation_sdk.builders import dashboard
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
    except ImportError as error:
        raise MissingExtra("grafana", "grafana-foundation-sdk") from error

    board = (
        dashboard.Dashboard("Dask")
        .uid(BOARD_UID)
        .description("Scheduler and workers of Dask, with the runs of benchkit.")
        .tags(["dask", "benchkit"])
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
    )
    for variable in _variables():
        board = board.with_variable(variable)
    board = board.annotation(_annotation())
    ids = itertools.count(1)
    for title, panels in _ROWS.items():
        board = board.with_row(dashboard.Row(title).id(next(ids)))
        for panel in panels:
            board = board.with_panel(_drawn(panel).id(next(ids)))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build())


def annotation(run: Run) -> dict[str, Any]:
    """Return a run as an annotation for Grafana's HTTP API: time range, tags, text.

    Parameters
    ----------
    run : Run
        A run whose clock was on.

    Raises
    ------
    UsageError
        The clock of the run was never on, so it has no time range.
    """
    attrs = run.tree.attrs
    if "clock_on" not in attrs:
        raise UsageError(f"run {run.id}: its clock never ran, so there is no time to mark")
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


def _variables() -> list[Any]:
    from grafana_foundation_sdk.builders import dashboard
    from grafana_foundation_sdk.models.dashboard import VariableRefresh

    source = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    found: list[Any] = [source]
    for name, label, query in (
        ("job", "Job", 'label_values({__name__=~"dask_(scheduler|worker)_.*"}, job)'),
        ("worker", "Worker", 'label_values(dask_worker_threads{job=~"$job"}, instance)'),
    ):
        found.append(
            dashboard.QueryVariable(name)
            .label(label)
            .query({"query": query, "refId": name})
            .datasource(_source())
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(_everything())
        )
    return found


def _everything() -> Any:
    from grafana_foundation_sdk.models.dashboard import VariableOption

    return VariableOption(selected=True, text=["All"], value=["$__all"])


def _source() -> Any:
    from grafana_foundation_sdk.models.dashboard import DataSourceRef

    return DataSourceRef(type_val="prometheus", uid="${datasource}")


def _annotation() -> Any:
    from grafana_foundation_sdk.builders import dashboard
    from grafana_foundation_sdk.models.dashboard import DataSourceRef

    target = dashboard.AnnotationTarget().limit(100).match_any(False)
    return (
        dashboard.AnnotationQuery()
        .name("benchkit runs")
        .datasource(DataSourceRef(type_val="grafana", uid="-- Grafana --"))
        .enable(True)
        .icon_color("purple")
        .target(target.tags([ANNOTATION_TAG]).type("tags"))
    )


def _drawn(panel: _Panel) -> Any:
    from grafana_foundation_sdk.builders import common, prometheus, timeseries
    from grafana_foundation_sdk.models.common import (
        LegendDisplayMode,
        LegendPlacement,
        StackingMode,
        TooltipDisplayMode,
    )

    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).show_legend(True)
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)
    mode = StackingMode.NORMAL if panel.stacked else StackingMode.NONE
    drawn = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.about)
        .datasource(_source())
        .unit(panel.unit)
        .min(0)
        .fill_opacity(40 if panel.stacked else 0)
        .stacking(common.StackingConfig().group("A").mode(mode))
        .legend(legend.placement(LegendPlacement.BOTTOM))
        .tooltip(tooltip)
        .span(_WIDTH)
        .height(_HEIGHT)
    )
    for index, (query, name) in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query).legend_format(name).ref_id(chr(65 + index))
        drawn = drawn.with_target(target)
    return drawn
