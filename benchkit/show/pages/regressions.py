"""Pages of regressions: all of a period with the improvements, and one with its causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchkit.analysis.regression.history import SERIES_FIELDS
from benchkit.analysis.regression.regression import FAILING, Regression, decision_text
from benchkit.analysis.regression.status import series_label
from benchkit.formatting import counted, format_bytes, format_change, format_seconds
from benchkit.show.pages.page import (
    Cell,
    Column,
    Figure,
    Page,
    Row,
    Section,
    Table,
    Target,
    Text,
    make_table,
    minute,
)
from benchkit.store.schema import METRICS

#: Kinds of events that feeds contain, and that add a comment to an issue.
REPORTED = ("opened", "grown", "eased", "recovered", "ended")
#: Most characters of the size of a regression in a table: that of a failure is its error.
_MAX_SIZE = 120
#: Most characters of an error on the page of a regression.
_MAX_ERROR = 4000


def series_target(about: Mapping[str, Any]) -> Target:
    """Return the page of a series."""
    return Target("history", {name: about.get(name) for name in (*SERIES_FIELDS, "metric")})


def regression_target(regression: Regression) -> Target:
    """Return the page of a regression."""
    metric = "" if regression.metric == FAILING else regression.metric
    return Target("regression", {"id": regression.id, **regression.about, "metric": metric})


def regression_table(
    regressions: Sequence[Regression], owners: Mapping[str, str], **more: Any
) -> Table:
    """Return the table of regressions."""
    things = [(regression, owners.get(regression.workload, "")) for regression in regressions]
    return make_table(_REGRESSION, things, _regression_row, **more)


def _regression_row(thing: tuple[Regression, str], cells: Sequence[Cell]) -> Row:
    regression, owner = thing
    return Row(cells, f"{regression.title} {regression.environment} {owner}")


def _title(regression: Regression) -> Text:
    title = regression.title.removesuffix(f" since {regression.night[:10]}")
    return Text(title, target=regression_target(regression))


def _state(regression: Regression) -> Text:
    if regression.is_open:
        return Text(f"▲ {regression.state}", "bad")
    return Text(regression.state, "soft")


def _who(regression: Regression, owner: str) -> Sequence[Text]:
    """Return the owner of the workload, and links to the changes between the builds."""
    links = [
        Text(f"changes of {change['name']}", target=str(change["link"]))
        for change in regression.facts.get("changed") or []
        if str(change.get("link") or "").startswith("https://")
    ]
    return [*([Text(owner)] if owner else []), *links] or [Text("no owner declared", "soft")]


_REGRESSION = (
    Column("state", lambda each: _state(each[0])),
    Column("regression", lambda each: _title(each[0])),
    Column("size", lambda each: each[0].size[:_MAX_SIZE], "the new level against the level before "
           "with its 95 % interval, as in the ledger: the same on all pages and in issues"),
    Column("where", lambda each: series_label(each[0].about)),
    Column("since", lambda each: Text(each[0].night[:10], "whole")),
    Column("closed", lambda each: Text(each[0].closed[:10], "whole") if each[0].closed else ""),
    Column("who should look", lambda each: _who(*each), "the owner that the workload declares "
           "(`owner=`), and the changes between the builds before and after"),
)  # fmt: skip


def improvement_table(
    improvements: Sequence[Mapping[str, Any]], owners: Mapping[str, str]
) -> Table:
    """Return the table of improvements, which are events of the ledger."""
    things = [(event, owners.get(str(event["workload"]), "")) for event in improvements]
    return make_table(_IMPROVEMENT, things, _improvement_row, empty="No improvements.")


def _improvement_row(thing: tuple[Mapping[str, Any], str], cells: Sequence[Cell]) -> Row:
    event, owner = thing
    return Row(cells, f"{event['workload']} {series_label(event)} {owner}")


def _better(event: Mapping[str, Any]) -> Text:
    ratio, low, high = (event.get(name) for name in ("ratio", "low", "high"))
    interval = f"95 % interval {format_change(low)} to {format_change(high)}"
    return Text(f"▼ {format_change(ratio)}", "good", title=interval, order=ratio)


_IMPROVEMENT = (
    Column("change", lambda each: _better(each[0])),
    Column("workload", lambda each: Text(str(each[0]["workload"]), target=series_target(each[0]))),
    Column("metric", lambda each: METRICS[each[0]["metric"]].long_name),
    Column("where", lambda each: series_label(each[0])),
    Column("since", lambda each: str(each[0]["night"])[:10]),
    Column("owner", lambda each: each[1]),
)  # fmt: skip


def page(
    regressions: Sequence[Regression],
    improvements: Sequence[Mapping[str, Any]],
    changes: Table,
    owners: Mapping[str, str],
    state: Mapping[str, str],
) -> Page:
    """Return the page of regressions; `state` has the filters: since, state and find.

    `changes` are all lasting changes with the builds, as `benchkit.show.pages.history` makes them.
    """
    since = state.get("since", "")
    found = [
        regression
        for regression in regressions
        if regression.night >= since
        and state.get("state", "") in ("", "open" if regression.is_open else "closed")
    ]
    found.sort(key=lambda regression: (regression.is_open, regression.night), reverse=True)
    worse = regression_table(found, owners, empty="No regressions.")
    better = improvement_table([each for each in improvements if each["night"] >= since], owners)
    worse, better = worse.filtered(state), better.filtered(state)
    n_open = sum(regression.is_open for regression in found)
    lines = [
        f"{n_open} open, {len(found) - n_open} closed; {counted(len(better.rows), 'improvement')}."
    ]
    return Page("Regressions", lines, [
        Section("What got worse?", worse), Section("What got better?", better),
        Section("What changed, and with which packages?", changes.filtered(state))])  # fmt: skip


def regression_page(regression: Regression, owner: str, figure: Figure | None = None) -> Page:
    """Return the page of one regression: size, cause, builds, runs and events."""
    facts = regression.facts
    changed = make_table(_CHANGED, facts.get("changed") or [])
    parts = [_part(row) for row in facts.get("parts") or []]
    runs = facts.get("runs") or {}
    sections = [
        regression_section(regression, owner, "What is it?"),
        Section("How has it changed?", figure or ()),
        Section("What is the error?", [Text(str(facts["error"])[:_MAX_ERROR], "code")]
                if facts.get("error") else ()),
        Section("What differs between the builds?", changed),
        Section("Where did the time or memory go?", Table(
            list(parts[0]) if parts else [], [Row(list(row.values())) for row in parts])),
        Section("How is the commit found?", [Text(str(facts["bisect"]), "code")]
                if facts.get("bisect") else ()),
        Section("Which runs were compared?", _facts(
            {side: ", ".join(map(str, runs[side])) for side in ("before", "after")
             if runs.get(side)})),
        Section("What happened since?", _facts_rows(
            [(minute(str(event["seen"])), _event(event)) for event in regression.events],
            ("night", "event"))),
    ]  # fmt: skip
    return Page(regression.title, [], [each for each in sections if each.has_content])


def regression_section(regression: Regression, owner: str, title: str = "") -> Section:
    """Return the properties of a regression."""
    explanation = regression.facts.get("explanation")
    note = f"Causes: {explanation}" if explanation else ""
    return Section(title or f"▲ {regression.title}", _facts(_properties(regression, owner)), note)


def _event(event: Mapping[str, Any]) -> str:
    return f"{event['kind']}: {event['reason']}" if event.get("reason") else str(event["kind"])


def _facts(rows: Mapping[str, Cell]) -> Table:
    return _facts_rows(list(rows.items()))


def _facts_rows(
    rows: Sequence[tuple[str, Cell]], columns: Sequence[str] = ("property", "value")
) -> Table:
    return Table(columns, [Row(row) for row in rows])


def _properties(regression: Regression, owner: str) -> dict[str, Cell]:
    metric = regression.metric
    if metric in METRICS:
        metric += f", {METRICS[metric].long_name}"
    cause, reason = regression.cause, regression.reason
    series = series_target(regression_target(regression).keys)
    rows: dict[str, Cell] = {
        "state": _state(regression),
        "workload": Text(regression.workload, target=series),
        "metric": metric,
        "size": regression.size,
        "first night": f"{minute(regression.night)} UTC, detected {minute(regression.seen)}",
        "where": series_label(regression.about),
        "who should look": _who(regression, owner),
        "cause": f"{cause}: {reason}" if reason else cause,
        "confirmed": "yes, both builds were measured again, interleaved"
        if regression.confirmed
        else "no, not measured again",
        "closed": minute(regression.closed or ""),
        "decided": "\n".join(map(decision_text, regression.decisions)),
    }
    return {name: value for name, value in rows.items() if value}


def _part(row: Mapping[str, Any]) -> dict[str, str]:
    """Return one part of a difference as text with units."""
    texts = {}
    for name, value in row.items():
        if isinstance(value, (int, float)):
            text = format_bytes(value) if "bytes" in row else format_seconds(value)
            value = f"+{text}" if value > 0 else text
        texts[str(name)] = "–" if value is None else str(value)
    return texts


def _compared(change: Mapping[str, Any]) -> Text | str:
    link = str(change.get("link") or "")
    return Text("compare", target=link) if link.startswith("https://") else ""


_CHANGED = (
    Column("change", lambda change: f"{change['kind']} {change['name']}"),
    Column("before", lambda change: str(change["before"])),
    Column("after", lambda change: str(change["after"])),
    Column("commits", _compared),
)
