"""Page of one environment: its content, and the package changes between its builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
import panel as pn

from benchkit.errors import BenchkitError
from benchkit.formatting import MISSING, format_bytes
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.state.cache import attributes_of
from benchkit.show.dashboard.state.url import address
from benchkit.show.escape import escape

__all__ = ["KINDS", "newest_attributes", "view"]

#: Kind of a difference -> title of its section; differences in counts are not shown.
KINDS = {
    "package": "Packages",
    "config": "Dask configuration",
    "variable": "Environment variables",
    "cluster": "Cluster",
}
#: Number of newest run files to try; number of builds compared with the previous build.
TRIES, MOST_BUILDS = 3, 15
#: Largest number of packages named per build; further packages are only counted.
MOST_NAMED = 12
#: Column of the index -> label; shown when no run file of a build can be opened.
_INDEXED = {
    "python": "Python",
    "dask": "dask",
    "distributed": "distributed",
    "git_commit": "commit",
}


def newest_attributes(runs: pd.DataFrame) -> dict[str, Any] | None:
    """Return the attributes of the first readable file of `TRIES` runs (newest first), or None."""
    for run_id in runs["id"].head(TRIES):
        try:
            return attributes_of(str(run_id))
        except BenchkitError:
            continue
    return None


def view(runs: pd.DataFrame, names: list[str], name: str) -> Any:
    """Return the page of an environment; `runs` contains all runs, newest first."""
    mine = runs[runs["environment"] == name]
    about = newest_attributes(mine)
    newest = mine.iloc[0]
    spec = _object(about, "environment_spec")
    workloads = mine["workload"].nunique()
    tiles = {
        "runs": str(len(mine)),
        "workloads": str(workloads),
        "Python": _known(newest, "python"),
        "dask": _known(newest, "dask"),
        "distributed": _known(newest, "distributed"),
    }
    first, last = (str(mine["started"].iloc[place])[:16] for place in (-1, 0))
    lines = [
        str(spec.get("description") or ""),
        f"Seen from {first} to {last} UTC. What is below is of its newest run.",
    ]
    content: list[Any] = [parts.head(name, lines=lines, tiles=tiles)]
    others = [other for other in names if other != name]
    content += [_builds(mine)]
    if about is None:
        content.append(
            parts.message("Its packages cannot be shown", "No file of its newest runs can be read.")
        )
    else:
        content += _facts(about, spec)
    if others:
        content += [
            parts.heading("Side by side", "Only what differs, of the newest runs of both."),
            parts.links(
                {
                    address("environments", name=name, **{"with": other}): f"{name} and {other}"
                    for other in others
                }
            ),
        ]
    return pn.Column(*content, sizing_mode="stretch_width")


def _known(row: Mapping[str, Any], field: str) -> str:
    value = row.get(field)
    return str(value) if value is not None and pd.notna(value) else MISSING


def _object(about: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    found = json.loads((about or {}).get(name) or "{}")
    return found if isinstance(found, dict) else {}


# -- builds ---------------------------------------------------------------------------------------


def _builds(runs: pd.DataFrame) -> Any:
    """Return the builds of an environment per host, with the changes from build to build."""
    changes = _changes(runs)
    title = "How its packages changed"
    if not changes:
        return pn.Column(
            parts.heading(title),
            parts.words("They did not: all of its runs had the same."),
            sizing_mode="stretch_width",
        )
    several = runs["host"].nunique() > 1
    cells = []
    for row, before in changes[:MOST_BUILDS]:
        link = address("run", id=row["id"])
        cells.append(
            [
                f"<a href='{escape(link)}'>{escape(str(row['started'])[:16])}</a>",
                *([escape(_known(row, "host"))] if several else []),
                f"<code>{escape(_known(row, 'packages_hash')[:12])}</code>",
                escape(_what_changed(before, row)),
            ]
        )
    titles = ["first run (UTC)", *(["host"] if several else []), "packages", "changed"]
    left = len(changes) - MOST_BUILDS
    below = "Against the build before, the newest first."
    content = [parts.heading(title, below), parts.rows(titles, cells, tight=True)]
    if left > 0:
        content.append(parts.words(f"{left} earlier changes are not listed."))
    return pn.Column(*content, sizing_mode="stretch_width")


def _changes(runs: pd.DataFrame) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return pairs of the first run of a build and the previous run on the same host."""
    if "packages_hash" not in runs:
        return []
    known = runs[runs["packages_hash"].notna()].iloc[::-1]
    before = known.groupby("host", dropna=False, sort=False)["packages_hash"].shift()
    is_new = before.notna() & (before != known["packages_hash"])
    # Position of the previous run on the same host, for the first run of each build.
    places = pd.Series(range(len(known)), index=known.index)
    earlier = places.groupby(known["host"], dropna=False, sort=False).shift()[is_new].astype(int)
    now, then = known[is_new].to_dict("records"), known.iloc[earlier].to_dict("records")
    return list(zip(now, then, strict=True))[::-1]


def _what_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the packages that differ between two runs as text; without files, from the index."""
    try:
        left, right = (_object(attributes_of(str(row["id"])), "packages") for row in (before, now))
    except BenchkitError:
        left, right = {}, {}
    if left and right and left != right:
        names = sorted({name for name in {*left, *right} if left.get(name) != right.get(name)})
    else:
        left, right = (
            {words: _known(row, name)[:10] for name, words in _INDEXED.items()}
            for row in (before, now)
        )
        names = [name for name in left if left[name] != right[name]]
    told = [f"{name} {_version(left, name)} → {_version(right, name)}" for name in names]
    more = f", {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
    return ", ".join(told[:MOST_NAMED]) + more or "not known"


def _version(side: Mapping[str, Any], name: str) -> str:
    return str(side.get(name) or MISSING)[:14]


# -- content --------------------------------------------------------------------------------------


def _facts(about: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Any]:
    packages = _object(about, "packages")
    content: list[Any] = [parts.heading("Cluster"), parts.facts(_cluster(about))]
    own = {
        "Dask configuration it sets": spec.get("dask"),
        "Environment variables it sets": spec.get("variables"),
        "Packages it asks for": spec.get("packages"),
    }
    for title, value in own.items():
        if value:
            text = json.dumps(value, indent=1, sort_keys=True)
            content += [parts.heading(title), parts.source_text(text)]
    content.append(parts.heading(f"{len(packages)} packages", "As installed on its newest run."))
    content.append(
        parts.columns([f"{name} {version}" for name, version in sorted(packages.items())])
        if packages
        else parts.words("They were not recorded.")
    )
    for title, name in (
        ("The whole Dask configuration, defaults included", "config"),
        ("Environment variables that were set", "variables"),
    ):
        value = _object(about, name)
        if value:
            text = json.dumps(value, indent=1, sort_keys=True)
            content.append(parts.folded(title, text))
    return content


def _cluster(about: Mapping[str, Any]) -> dict[str, Any]:
    told = _object(about, "cluster_description")
    kwargs = told.get("kwargs") or {}
    memory = told.get("memory_limit")
    host = _object(about, "host_json")
    rows = {
        "class": told.get("class"),
        "options": ", ".join(f"{key} = {value}" for key, value in kwargs.items()),
        "workers": told.get("n_workers"),
        "threads": told.get("n_threads"),
        "memory limit": format_bytes(memory) if memory else "",
        "host": host.get("host") or about.get("host"),
        "system": host.get("system"),
        "processor": host.get("processor"),
    }
    return {name: value for name, value in rows.items() if value not in (None, "")} or {
        "cluster": "not recorded"
    }
