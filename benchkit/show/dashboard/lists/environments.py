"""Pages of environments: the list, one environment, and the differences between two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import panel as pn

from benchkit.analysis.compare.environment_diff import differences
from benchkit.errors import BenchkitError
from benchkit.formatting import MISSING, counted
from benchkit.show.dashboard.components import components as parts
from benchkit.show.dashboard.lists import environment
from benchkit.show.dashboard.state.cache import runs_table
from benchkit.show.dashboard.state.url import address, remember
from benchkit.show.escape import escape

__all__ = ["TITLE", "view"]

TITLE = "Environments"
_TERMS = {
    "runs": "runs of the store that were measured in it, however they ended",
    "builds": "how many sets of packages there were under this name; one is alike on all runs",
    "python, dask, distributed": "as in its newest run",
    "packages": "beginning of the hash of Python and all packages of its newest run: where two "
    "are equal, so are the packages",
}
_TITLES = (
    "environment", "runs", "first seen (UTC)", "last seen (UTC)", "python", "dask", "distributed",
    "builds", "packages", "hosts",
)  # fmt: skip


def view(state: dict[str, str]) -> Any:
    """Return the list; one environment (key ``name``); or its differences to another (``with``)."""
    runs = runs_table()
    if runs.empty or runs["environment"].notna().sum() == 0:
        return parts.message(
            "No environments yet",
            "An environment is shown here once something was measured in it:",
            "benchkit run -k tag:quick",
        )
    names = sorted(runs["environment"].dropna().unique())
    for key in ("name", "with"):
        if state.get(key) and state[key] not in names:
            return pn.Column(
                parts.message("No such environment", f"Nothing was measured in {state[key]!r}."),
                parts.links({address("environments"): "All environments"}),
                sizing_mode="stretch_width",
            )
    if state.get("name") and state.get("with"):
        return _pair(runs, names, state["name"], state["with"])
    if state.get("name"):
        return environment.view(runs, names, state["name"])
    return _list(runs, names)


def _list(runs: pd.DataFrame, names: list[str]) -> Any:
    groups = {str(name): group for name, group in runs.groupby("environment", sort=False)}
    newest = sorted(groups, key=lambda name: groups[name]["started"].iloc[0], reverse=True)
    content: list[Any] = [
        parts.head(
            counted(len(names), "environment"),
            lines=["Everything that may differ between two measurements, by name; newest first."],
        ),
        parts.rows(_TITLES, [_cells(name, groups[name]) for name in newest], tight=True),
        parts.glossary(_TERMS),
    ]
    if len(newest) > 1:
        content += [parts.heading("Side by side", "What differs between the newest runs of two."),
                    _choose(names, newest[0], newest[1])]  # fmt: skip
    return pn.Column(*content, sizing_mode="stretch_width")


def _cells(name: str, runs: pd.DataFrame) -> list[str]:
    """Return the cells of a row as HTML, with all text from runs escaped."""
    newest = runs.iloc[0]

    def known(field: str) -> str:
        value = newest.get(field)
        return escape(value) if value is not None and pd.notna(value) else MISSING

    builds = runs["packages_hash"].nunique() if "packages_hash" in runs else 0
    packages = known("packages_hash")
    hosts = list(dict.fromkeys(runs["host"].dropna())) if "host" in runs else []
    more = f", {len(hosts) - 2} more" if len(hosts) > 2 else ""
    return [
        f"<a href='{escape(address('environments', name=name))}'>{escape(name)}</a>",
        str(len(runs)),
        escape(str(runs["started"].iloc[-1])[:10]),
        escape(str(newest["started"])[:10]),
        known("python"),
        known("dask"),
        known("distributed"),
        str(builds) if builds else MISSING,
        f"<code>{packages[:12]}</code>" if packages != MISSING else MISSING,
        escape(", ".join(map(str, hosts[:2])) + more) or MISSING,
    ]


def _choose(names: list[str], one: str, other: str) -> Any:
    """Return two selects for environments and a link to the page of their differences."""
    first = pn.widgets.Select(name="One", options=names, value=one, width=260)
    second = pn.widgets.Select(name="Other", options=names, value=other, width=260)
    link = pn.Column(sizing_mode="stretch_width")

    def draw(*events: Any) -> None:
        target = address("environments", name=first.value, **{"with": second.value})
        link[:] = [parts.links({target: f"What differs between {first.value} and {second.value}"})]

    draw()
    first.param.watch(draw, "value")
    second.param.watch(draw, "value")
    return pn.Column(pn.Row(first, second), link, sizing_mode="stretch_width")


def _pair(runs: pd.DataFrame, names: list[str], one: str, other: str) -> Any:
    first = pn.widgets.Select(name="One", options=names, value=one, width=260)
    second = pn.widgets.Select(name="Other", options=names, value=other, width=260)
    body = pn.Column(sizing_mode="stretch_width")

    def draw(*events: Any) -> None:
        body[:] = _differing(runs, first.value, second.value)
        if events:
            remember("environments", {"name": first.value, "with": second.value})

    draw()
    first.param.watch(draw, "value")
    second.param.watch(draw, "value")
    return pn.Column(pn.Row(first, second), body, sizing_mode="stretch_width")


def _differing(runs: pd.DataFrame, one: str, other: str) -> list[Any]:
    if one == other:
        return [parts.message("One and the same", "Choose two that differ in name.")]
    sides: dict[str, Mapping[str, Any]] = {}
    for name in (one, other):
        found = environment.newest_attributes(runs[runs["environment"] == name])
        if found is None:
            return [
                parts.message(
                    "This cannot be compared", f"None of the newest runs in {name!r} can be opened."
                )
            ]
        sides[name] = found
    try:
        table = differences([_Facts(sides[one])], [_Facts(sides[other])])
    except (BenchkitError, ValueError) as error:
        return [parts.message("This cannot be compared", str(error))]
    table = table[table["kind"].isin(environment.KINDS)]
    lines = [
        f"{name}: packages of {str(about['started'])[:16].replace('T', ' ')} UTC"
        for name, about in sides.items()
    ]
    content: list[Any] = [parts.head(f"{one} and {other}", lines=lines)]
    links = {
        address("environments", name=one): f"All of {one}",
        address("environments", name=other): f"All of {other}",
        address("compare", baseline=f"environment:{one}", contender=f"environment:{other}"):
            "Runs of both, compared",
    }  # fmt: skip
    if table.empty:
        return [*content, parts.message("Nothing differs", "Nothing of what was recorded."),
                parts.links(links)]  # fmt: skip
    for kind, title in environment.KINDS.items():
        part = table[table["kind"] == kind]
        if len(part):
            cells = [[escape(row[n]) for n in ("name", "baseline", "contender")]
                     for row in part.to_dict("records")]  # fmt: skip
            content += [parts.heading(title), parts.rows([kind, one, other], cells)]
        else:
            content.append(parts.words(f"{title}: no difference."))
    return [*content, parts.links(links)]


class _Facts:
    """Input of `differences` made from the attributes of a run, without reading its groups."""

    data_vars = ()

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs = attrs
