"""Pages of environments: the list, one environment, and the differences between two."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import panel as pn
import xarray as xr
from panel.viewable import Viewable

from benchkit.analysis.compare.environment_diff import differences
from benchkit.errors import BenchkitError
from benchkit.formatting import MISSING, counted
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.markup import code, link, text_or_missing
from benchkit.show.dashboard.components.widgets import filtered, select
from benchkit.show.dashboard.lists import environment
from benchkit.show.dashboard.state.attributes import newest_attributes
from benchkit.show.dashboard.state.cache import runs_table
from benchkit.show.dashboard.state.url import address

__all__ = ["TITLE", "view"]

TITLE = "Environments"
#: Columns of the runs that the pages read.
_COLUMNS = ("id", "started", "environment", "workload", "host", *environment.BUILD)
_TERMS = {
    "runs": "runs of the store in this environment, of any outcome",
    "builds": "number of different sets of packages under this name",
    "python, dask, distributed": "of its newest run",
    "packages": "start of the hash of Python and all packages of its newest run; equal hashes mean "
    "equal packages",
}
_TITLES = (
    "environment", "runs", "first seen (UTC)", "last seen (UTC)", "python", "dask", "distributed",
    "builds", "packages", "hosts",
)  # fmt: skip


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
            _selects(names, state["name"], state["with"]),
            lambda values: _differences(runs, values["name"], values["with"]),
        )
    if state.get("name"):
        return environment.view(runs, names, state["name"])
    return _list(runs, names)


def _list(runs: pd.DataFrame, names: list[str]) -> pn.Column:
    groups = {str(name): group for name, group in runs.groupby("environment", sort=False)}
    newest = sorted(groups, key=lambda name: groups[name]["started"].iloc[0], reverse=True)
    line = "Everything that may differ between two measurements, by name; newest first."
    content: list[Viewable] = [
        ui.page_head(counted(len(names), "environment"), lines=[line]),
        tables.html_table(_TITLES, [_cells(name, groups[name]) for name in newest], tight=True),
        tables.glossary(_TERMS),
    ]
    if len(newest) > 1:
        selects = _selects(names, newest[0], newest[1])
        below = "Differences between the newest runs of two environments."
        content += [ui.heading("Side by side", below), filtered("", selects, _pair_link)]
    return ui.column(*content)


def _cells(name: str, runs: pd.DataFrame) -> list[str]:
    """Return the cells of a row."""
    newest = runs.iloc[0]
    n_builds = runs["packages_hash"].nunique() if "packages_hash" in runs else 0
    packages = text_or_missing(newest.get("packages_hash"))
    hosts = list(dict.fromkeys(runs["host"].dropna())) if "host" in runs else []
    more = f", {len(hosts) - 2} more" if len(hosts) > 2 else ""
    return [
        link(name, address("environments", name=name)),
        str(len(runs)),
        str(runs["started"].iloc[-1])[:10],
        str(newest["started"])[:10],
        *(text_or_missing(newest.get(field)) for field in ("python", "dask", "distributed")),
        str(n_builds or MISSING),
        packages if packages == MISSING else code(packages[:12]),
        ", ".join(map(str, hosts[:2])) + more or MISSING,
    ]


def _selects(names: list[str], first: str, second: str) -> dict[str, pn.widgets.Select]:
    return {
        "name": select("One", names, first, width=260),
        "with": select("Other", names, second, width=260),
    }


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
    content: list[Viewable] = [ui.page_head(f"{first} and {second}", lines=lines)]
    for kind, title in environment.KINDS.items():
        rows = table.loc[table["kind"] == kind, ["name", "baseline", "contender"]]
        if len(rows):
            cells = rows.astype(str).itertuples(index=False, name=None)
            content += [ui.heading(title), tables.html_table([kind, first, second], cells)]
        else:
            content.append(ui.paragraph(f"{title}: no difference."))
    selections = {"baseline": f"environment:{first}", "contender": f"environment:{second}"}
    links = {
        address("environments", name=first): f"All of {first}",
        address("environments", name=second): f"All of {second}",
        address("compare", **selections): "Compare the runs of both",
    }
    return [*content, ui.link_list(links)]
