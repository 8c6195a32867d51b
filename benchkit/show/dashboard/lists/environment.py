"""Page of one environment: its content, and the package changes between its builds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import panel as pn
from panel.viewable import Viewable

from benchkit.errors import BenchkitError
from benchkit.formatting import MISSING, format_bytes
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.markup import code, run_link, text_or_missing
from benchkit.show.dashboard.state.attributes import attributes_of, newest_attributes
from benchkit.show.dashboard.state.url import address
from benchkit.show.plots.history import BUILD
from benchkit.values import decode_json

__all__ = ["KINDS", "view"]

#: Kind of a difference -> title of its section; differences in counts are not shown.
KINDS = {
    "package": "Packages",
    "config": "Dask configuration",
    "variable": "Environment variables",
    "cluster": "Cluster",
}
#: Number of builds compared with the previous build.
MAX_BUILDS = 15
#: Largest number of packages named per build; further packages are only counted.
MAX_NAMED = 12


def view(all_runs: pd.DataFrame, names: list[str], name: str) -> pn.Column:
    """Return the page of an environment."""
    runs = all_runs[all_runs["environment"] == name]
    attributes, newest = newest_attributes(runs), runs.iloc[0]
    spec = decode_json(attributes.get("environment_spec"))
    figures = {"runs": str(len(runs)), "workloads": str(runs["workload"].nunique())}
    for label, field in (("Python", "python"), ("dask", "dask"), ("distributed", "distributed")):
        figures[label] = text_or_missing(newest.get(field))
    first, last = (str(runs["started"].iloc[i])[:16] for i in (-1, 0))
    lines = [
        str(spec.get("description") or ""),
        f"Runs from {first} to {last} UTC. The details below are those of the newest run.",
    ]
    content: list[Viewable] = [
        ui.page_head(name, lines=lines, figures=figures),
        *ui.guard_parts(lambda: _builds(runs)),
    ]
    if attributes:
        content += ui.guard_parts(lambda: _details(attributes, spec))
    else:
        text = "The files of its newest runs cannot be read."
        content.append(ui.message("Its packages cannot be shown", text))
    others = {
        address("environments", name=name, **{"with": other}): f"{name} and {other}"
        for other in names
        if other != name
    }
    if others:
        below = "Differences between the newest runs of both."
        content += [ui.heading("Side by side", below), ui.link_list(others)]
    return ui.column(*content)


def _builds(runs: pd.DataFrame) -> list[Viewable]:
    """Return the builds of an environment per host, with the changes from build to build."""
    changes, title = _changes(runs), "Package changes"
    if not changes:
        return [ui.heading(title), ui.paragraph("No changes: all runs had the same packages.")]
    has_hosts = runs["host"].nunique() > 1
    rows = [
        [
            run_link(run),
            *([text_or_missing(run.get("host"))] if has_hosts else []),
            code(str(run["packages_hash"])[:12]),
            _changed_packages(previous, run),
        ]
        for run, previous in changes[:MAX_BUILDS]
    ]
    titles = ["first run (UTC)", *(["host"] if has_hosts else []), "packages", "changed"]
    content: list[Viewable] = [
        ui.heading(title, "Compared with the previous build, newest first."),
        tables.html_table(titles, rows, tight=True),
    ]
    if len(changes) > MAX_BUILDS:
        n_hidden = len(changes) - MAX_BUILDS
        content.append(ui.paragraph(f"{n_hidden} earlier changes are not listed."))
    return content


def _changes(runs: pd.DataFrame) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return pairs of the first run of a build and the previous run on the same host."""
    if "packages_hash" not in runs:
        return []
    built = runs[runs["packages_hash"].notna()].iloc[::-1]
    hosts = built["host"]
    before = built["packages_hash"].groupby(hosts, dropna=False, sort=False).shift()
    is_new = before.notna() & (before != built["packages_hash"])
    # Position of the previous run on the same host, for the first run of each build.
    positions = pd.Series(range(len(built)), index=built.index)
    earlier = positions.groupby(hosts, dropna=False, sort=False).shift()[is_new].astype(int)
    first, previous = built[is_new].to_dict("records"), built.iloc[earlier].to_dict("records")
    return list(zip(first, previous, strict=True))[::-1]


def _changed_packages(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the packages that differ between two runs as text; without files, from the index."""
    try:
        left, right = (
            decode_json(attributes_of(str(row["id"])).get("packages")) for row in (before, now)
        )
    except BenchkitError:
        left, right = {}, {}
    if not (left and right and left != right):
        left, right = (
            {label: text_or_missing(row.get(name))[:10] for name, label in BUILD.items()}
            for row in (before, now)
        )
    texts = [
        f"{name} {_version(left, name)} → {_version(right, name)}"
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name)
    ]
    more = f", {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return ", ".join(texts[:MAX_NAMED]) + more or "unknown"


def _version(side: Mapping[str, Any], name: str) -> str:
    return str(side.get(name) or MISSING)[:14]


def _details(attributes: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Viewable]:
    packages = decode_json(attributes.get("packages"))
    content: list[Viewable] = [ui.heading("Cluster"), tables.facts(_cluster(attributes))]
    own = {
        "Dask configuration it sets": spec.get("dask"),
        "Environment variables it sets": spec.get("variables"),
        "Packages it requires": spec.get("packages"),
    }
    for title, value in own.items():
        if value:
            content += [ui.heading(title), ui.json_block(value)]
    content += [
        ui.heading(f"{len(packages)} packages", "As installed for its newest run."),
        ui.column_list([f"{name} {version}" for name, version in sorted(packages.items())])
        if packages
        else ui.paragraph("Packages were not recorded."),
    ]
    for title, name in (
        ("Complete Dask configuration, defaults included", "config"),
        ("Environment variables that were set", "variables"),
    ):
        if value := decode_json(attributes.get(name)):
            content.append(ui.json_block(value, title))
    return content


def _cluster(attributes: Mapping[str, Any]) -> dict[str, Any]:
    cluster, host = (
        decode_json(attributes.get(name)) for name in ("cluster_description", "host_json")
    )
    memory, options = cluster.get("memory_limit"), cluster.get("kwargs") or {}
    rows = {
        "class": cluster.get("class"),
        "options": ", ".join(f"{key} = {value}" for key, value in options.items()),
        "workers": cluster.get("n_workers"),
        "threads": cluster.get("n_threads"),
        "memory limit": format_bytes(memory) if memory else "",
        "host": host.get("host") or attributes.get("host"),
        "system": host.get("system"),
        "processor": host.get("processor"),
    }
    present = {name: value for name, value in rows.items() if value not in (None, "")}
    return present or {"cluster": "not recorded"}
