"""Pages of environments: the list, one environment, and the differences between two."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
import panel as pn
import xarray as xr
from panel.viewable import Viewable

from benchkit.analysis.compare.environment_diff import differences
from benchkit.errors import BenchkitError
from benchkit.formatting import MISSING, ROWS_SHOWN, counted, format_bytes
from benchkit.show.dashboard.components.widgets import filtered
from benchkit.show.dashboard.state.cache import attributes_of, newest_attributes, runs_table
from benchkit.show.dashboard.state.url import address, href
from benchkit.show.pages import comparison
from benchkit.show.pages.page import (
    Cell,
    Filter,
    Section,
    Target,
    Text,
    cells_table,
    run_text,
    select_filter,
    text_or_missing,
)
from benchkit.show.plots.history import BUILD
from benchkit.show.render import panel as ui
from benchkit.values import decode_json


def environment_page(all_runs: pd.DataFrame, names: list[str], name: str) -> pn.Column:
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
        ui.guard(lambda: ui.section(_builds(runs), href)),
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


def _builds(runs: pd.DataFrame) -> Section:
    """Return the builds of an environment per host, with the changes from build to build."""
    changes, has_hosts = _changes(runs), runs["host"].nunique() > 1
    rows: list[dict[str, Cell]] = [
        {
            "first run (UTC)": run_text(run),
            "host": text_or_missing(run.get("host")) if has_hosts else "",
            "packages": str(run["packages_hash"])[:12],
            "changed": _changed_packages(previous, run),
            "runs": _comparison(previous, run),
        }
        for run, previous in changes[:ROWS_SHOWN]
    ]
    note = "Compared with the previous build, newest first."
    if len(changes) > ROWS_SHOWN:
        note += f" {len(changes) - ROWS_SHOWN} earlier changes are not listed."
    table = cells_table(rows, empty="No changes: all runs had the same packages.")
    return Section("How did its packages change?", table, note if rows else "")


def _comparison(before: Mapping[str, Any], now: Mapping[str, Any]) -> Text:
    """Return a link to the comparison of all runs of two builds of an environment."""
    builds = [str(run["packages_hash"])[:12] for run in (before, now)]
    sides = [f"env:{now['environment']},build:{build}" for build in builds]
    target = Target("compare", dict(zip(("baseline", "contender"), sides, strict=True)))
    title = f"compare the runs of builds {' and '.join(builds)}"
    return Text("compare", target=target, title=title)


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
    more = f", {len(texts) - ROWS_SHOWN} more" if len(texts) > ROWS_SHOWN else ""
    return ", ".join(texts[:ROWS_SHOWN]) + more or "unknown"


def _version(side: Mapping[str, Any], name: str) -> str:
    return str(side.get(name) or MISSING)[:14]


def _details(attributes: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Viewable]:
    packages = decode_json(attributes.get("packages"))
    content: list[Viewable] = [ui.heading("Cluster"), ui.facts(_cluster(attributes))]
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


TITLE = "Environments"
#: Columns of the runs that the pages read.
_COLUMNS = ("id", "started", "environment", "workload", "host", *BUILD)
_TERMS = {
    "runs": "runs of the store in this environment, of any outcome",
    "builds": "number of different sets of packages under this name",
    **dict.fromkeys(("python", "dask", "distributed"), "of its newest run"),
    "packages": "start of the hash of Python and all packages of its newest run; equal hashes mean "
    "equal packages",
}


def view(state: dict[str, str]) -> Viewable:
    """Return the list; one environment; or its differences to another."""
    runs = runs_table(_COLUMNS)
    if runs.empty or runs["environment"].notna().sum() == 0:
        return ui.message(
            "No environments yet",
            "An environment is shown here after the first measurement in it:",
            "benchkit run -k tag:quick",
        )
    names = sorted(runs["environment"].dropna().unique())
    for key in ("name", "with"):
        if state.get(key) and state[key] not in names:
            return ui.column(
                ui.message("No such environment", f"There are no runs in {state[key]!r}."),
                ui.link_list({address("environments"): "All environments"}),
            )
    if state.get("name") and state.get("with"):
        return filtered(
            "environments",
            partial(_two_names, names),
            lambda values: _differences(runs, values["name"], values["with"]),
            state,
        )
    if state.get("name"):
        return environment_page(runs, names, state["name"])
    return _list(runs, names)


def _list(runs: pd.DataFrame, names: list[str]) -> pn.Column:
    groups = {str(name): group for name, group in runs.groupby("environment", sort=False)}
    newest = sorted(groups, key=lambda name: groups[name]["started"].iloc[0], reverse=True)
    line = "Everything that may differ between two measurements, by name; newest first."
    table = cells_table([_cells(name, groups[name]) for name in newest], _TERMS)
    content: list[Viewable] = [
        ui.page_head(counted(len(names), "environment"), lines=[line]),
        ui.section(Section("Which were measured?", table), href),
    ]
    if len(newest) > 1:
        both = {"name": newest[0], "with": newest[1]}
        below = "Differences between the newest runs of two environments."
        links = filtered("", partial(_two_names, names), _pair_link, both)
        content += [ui.heading("Side by side", below), links]
    return ui.column(*content)


def _cells(name: str, runs: pd.DataFrame) -> dict[str, Cell]:
    """Return the cells of a row."""
    newest = runs.iloc[0]
    n_builds = runs["packages_hash"].nunique() if "packages_hash" in runs else 0
    hosts = list(dict.fromkeys(runs["host"].dropna())) if "host" in runs else []
    more = f", {len(hosts) - 2} more" if len(hosts) > 2 else ""
    return {
        "environment": Text(name, target=Target("environments", {"name": name})),
        "runs": str(len(runs)),
        "first seen (UTC)": Text(str(runs["started"].iloc[-1])[:10], "whole"),
        "last seen (UTC)": Text(str(newest["started"])[:10], "whole"),
        **{name: text_or_missing(newest.get(name)) for name in ("python", "dask", "distributed")},
        "builds": str(n_builds or MISSING),
        "packages": text_or_missing(newest.get("packages_hash"))[:12],
        "hosts": ", ".join(map(str, hosts[:2])) + more or MISSING,
    }


def _two_names(names: list[str], state: Mapping[str, str]) -> list[Filter]:
    options = {name: name for name in names}
    return [
        select_filter(state, key, title, options)
        for key, title in {"name": "One", "with": "Other"}.items()
    ]


def _pair_link(values: Mapping[str, str]) -> list[Viewable]:
    text = f"Differences between {values['name']} and {values['with']}"
    return [ui.link_list({address("environments", **values): text})]


def _differences(runs: pd.DataFrame, first: str, second: str) -> list[Viewable]:
    if first == second:
        return [ui.message("The same environment", "Select two different environments.")]
    sides = {name: newest_attributes(runs[runs["environment"] == name]) for name in (first, second)}
    for name, attributes in sides.items():
        if not attributes:
            text = f"None of the newest runs in {name!r} can be opened."
            return [ui.message("This cannot be compared", text)]
    try:
        # Attributes only: the comparison needs no groups of a run.
        trees = [xr.DataTree(xr.Dataset(attrs=sides[name])) for name in (first, second)]
        table = differences(trees[:1], trees[1:])
    except (BenchkitError, ValueError) as error:
        return [ui.message("This cannot be compared", str(error))]
    lines = [
        f"{name}: packages of {str(attributes['started'])[:16].replace('T', ' ')} UTC"
        for name, attributes in sides.items()
    ]
    (section,) = comparison.differences(first, {second: table[table["kind"] != "count"]})
    selections = {"baseline": f"environment:{first}", "contender": f"environment:{second}"}
    links = {
        address("environments", name=first): f"All of {first}",
        address("environments", name=second): f"All of {second}",
        address("compare", **selections): "Compare the runs of both",
    }
    head = ui.page_head(f"{first} and {second}", lines=lines)
    return [head, ui.section(section, href), ui.link_list(links)]
