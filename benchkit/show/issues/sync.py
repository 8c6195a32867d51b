"""One issue per workload and metric: opened, updated, commented on, closed on recovery.

Writes the text of each issue and decides what to do with it; `benchkit.show.issues.trackers` sends
it. A hidden marker identifies an issue, so its title may be changed by hand. A second hidden marker
holds the last reported event of the ledger, so that a repeated call changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchkit.analysis.regression.regression import FAILING, Regression
from benchkit.formatting import format_change
from benchkit.show import markdown
from benchkit.store.schema import METRICS

__all__ = ["LABEL", "Issue", "Tracker", "issue_body", "issue_title", "marker", "sync_issues"]

#: Label of every issue that benchkit opens; issues without it are ignored.
LABEL = "performance-regression"
#: Maximum bytes of a body or comment: GitHub's limit is 65,536 characters, at least a byte each.
MOST_BYTES = 65_000
#: Maximum characters of a title; GitHub allows 256.
MOST_TITLE = 200
#: Maximum number of packages listed in an issue; the page of the regression lists all.
MOST_CHANGES = 15
#: Kinds of events that add a comment to an issue.
_TOLD = ("opened", "grown", "eased", "recovered", "ended")


@dataclass
class Issue:
    """The fields of an issue that benchkit uses; `number` identifies it in its tracker."""

    number: int | str
    title: str
    body: str
    is_open: bool
    labels: Sequence[str] = field(default_factory=tuple)


class Tracker(Protocol):
    """Interface of a service or folder that stores issues."""

    def issues(self) -> list[Issue]:
        """Return all issues with benchkit's label, open and closed."""

    def create(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Open an issue."""

    def edit(self, issue: Issue, *, body: str | None = None, is_open: bool | None = None) -> None:
        """Change the body or the state of an issue; None keeps the value."""

    def comment(self, issue: Issue, body: str) -> None:
        """Add a comment to an issue."""


def marker(workload: str, metric: str) -> str:
    """Return the hidden text that identifies the issue of a workload and metric."""
    name = hashlib.sha256(f"{workload}\n{metric}".encode()).hexdigest()[:16]
    return f"<!-- benchkit:regression:{name} -->"


def sync_issues(
    regressions: Sequence[Regression], tracker: Tracker, *, site: str | None = None
) -> list[str]:
    """Update the issues of a tracker to match the ledger.

    Parameters
    ----------
    regressions : sequence of Regression
        All regressions in the ledger.
    tracker : Tracker
        The tracker that stores the issues.
    site : str, optional
        Address of the published site, for links.

    Returns
    -------
    list of str
        One line for each action.

    Notes
    -----
    An issue that a person closed stays closed until the ledger has a new reportable event.
    """
    known: dict[str, list[Issue]] = {}
    for issue in tracker.issues():
        found = re.search(r"<!-- benchkit:regression:[0-9a-f]{16} -->", issue.body)
        if found:
            known.setdefault(found[0], []).append(issue)
    done: list[str] = []
    groups: dict[tuple[str, str], list[Regression]] = {}
    for one in regressions:
        groups.setdefault((one.workload, one.metric), []).append(one)
    for (workload, metric), members in sorted(groups.items()):
        members.sort(key=lambda one: (not one.is_open, one.seen))
        name = marker(workload, metric)
        there = sorted(known.get(name, []), key=lambda issue: str(issue.number).zfill(12))
        done += _sync_one(members, there[0] if there else None, tracker, site)
        for double in there[1:]:  # two jobs opened the same issue at the same time
            if double.is_open:
                tracker.comment(double, f"The same as {there[0].number}, which goes on.")
                tracker.edit(double, is_open=False)
                done.append(f"closed {double.number}: the same as {there[0].number}")
    return done


def _sync_one(
    members: Sequence[Regression], issue: Issue | None, tracker: Tracker, site: str | None
) -> list[str]:
    is_open = any(one.is_open for one in members)
    title, body = issue_title(members), issue_body(members, site=site)
    if issue is None:
        if not is_open:  # the regression ended before an issue was opened
            return []
        issue = tracker.create(title, body, _labels(members))
        return [f"opened {issue.number}: {title}"]
    done = []
    new = [event for event in _events(members) if str(event["id"]) > _told(issue.body)]
    # Without a new reportable event the body is not edited: it shows the last reported state.
    if new:
        reopened = is_open and not issue.is_open
        tracker.comment(issue, _comment(new, members))
        tracker.edit(issue, body=body, is_open=True if reopened else None)
        done.append(f"{'reopened' if reopened else 'updated'} {issue.number}: {title}")
    if not is_open and issue.is_open:
        if not new:  # accepted by a mark
            tracker.comment(issue, _comment([], members))
            tracker.edit(issue, body=body)
        tracker.edit(issue, is_open=False)
        done.append(f"closed {issue.number}: {title}")
    return done


def issue_title(members: Sequence[Regression]) -> str:
    """Return the title of the issue of regressions of one workload and metric."""
    one = members[0]
    word = "fails" if one.metric == FAILING else METRICS[one.metric].long_name
    change = "" if one.metric == FAILING else f" {format_change(one.ratio)}"
    title = f"{one.workload}: {word}{change} since {one.night[:10]}"
    return title if len(title) <= MOST_TITLE else title[: MOST_TITLE - 1] + "…"


def issue_body(members: Sequence[Regression], *, site: str | None = None) -> str:
    """Return the text of the issue of regressions of one workload and metric.

    Parameters
    ----------
    members : sequence of Regression
        Open regressions first. Open regressions get a full section, the others one line.
    site : str, optional
        Address of the published site.

    Returns
    -------
    str
        At most 65,000 bytes of Markdown, with the hidden markers first.
    """
    told = max((str(event["id"]) for event in _events(members)), default="")
    lines = [marker(members[0].workload, members[0].metric), f"<!-- benchkit:told:{told} -->", ""]
    current = [one for one in members if one.is_open] or members[:1]
    for one in current:
        lines += _section(one, site)
    past = [one for one in members if one not in current]
    if past:
        lines += ["", "### Before", ""]
        lines += [f"- {one.state}: {markdown.text(one.title)}" for one in past]
    return markdown.cut(lines, MOST_BYTES)


def _section(one: Regression, site: str | None) -> list[str]:
    metric = METRICS[one.metric].long_name if one.metric in METRICS else "outcome"
    sure = {True: "confirmed by measuring both builds again, interleaved"}.get(
        one.confirmed or False, "not measured again"
    )
    rows = [
        ("workload", markdown.code(one.workload)),
        ("metric", f"{markdown.code(one.metric)}, {metric}"),
        ("size", markdown.text(one.size)),
        ("since the night", f"{one.night[:16]} UTC (seen {one.seen[:16]})"),
        ("environment", f"{markdown.code(one.environment)} on {markdown.code(one.host)}"),
        ("cause", f"{markdown.text(one.cause)}: {markdown.text(one.reason)}"),
        ("state", f"{one.state}; {sure}"),
    ]
    lines = ["", *markdown.table(["", ""], rows), ""]
    facts = one.facts
    if facts.get("explanation"):
        lines += [f"**Where it went:** {markdown.text(facts['explanation'])}", ""]
    if facts.get("error"):
        lines += ["**Error**", markdown.fenced(str(facts["error"])[:4000]), ""]
    lines += _changes(facts.get("changed") or [])
    if facts.get("bisect"):
        lines += ["**Find it:**", markdown.fenced(str(facts["bisect"]), "console"), ""]
    runs = facts.get("runs") or {}
    for side in ("before", "after"):
        if runs.get(side):
            lines.append(f"Runs {side}: {', '.join(markdown.code(name) for name in runs[side])}  ")
    if site:
        lines += [
            "",
            f"[All nights of this regression]({site.rstrip('/')}/regressions/{one.id}.html)",
        ]
    return lines


def _changes(changed: Sequence[Mapping[str, Any]]) -> list[str]:
    if not changed:
        return []
    rows = []
    for one in changed[:MOST_CHANGES]:
        name = markdown.code(f"{one['kind']} {one['name']}")
        if str(one.get("link", "")).startswith("https://"):
            name += f" ([compare]({one['link']}))"
        rows.append((name, markdown.code(one["before"]), markdown.code(one["after"])))
    lines = ["**What changed between the builds**", ""]
    lines += markdown.table(["what", "before", "after"], rows)
    more = len(changed) - len(rows)
    return [*lines, "", *([f"and {more} more", ""] if more > 0 else [])]


def _labels(members: Sequence[Regression]) -> list[str]:
    return [LABEL, "failure" if members[0].metric == FAILING else members[0].metric]


def _events(members: Sequence[Regression]) -> list[Mapping[str, Any]]:
    events = [event for one in members for event in one.events if event["kind"] in _TOLD]
    return sorted(events, key=lambda event: str(event["id"]))


def _told(body: str) -> str:
    found = re.search(r"<!-- benchkit:told:([0-9a-f-]*) -->", body)
    return found[1] if found else ""


def _comment(events: Sequence[Mapping[str, Any]], members: Sequence[Regression]) -> str:
    lines = []
    by_id = {one.id: one for one in members}
    for event in events:
        one = by_id.get(str(event.get("regression")))
        where = f"{markdown.code(event['environment'])} on {markdown.code(event['host'])}"
        size = (
            f": {markdown.text(one.size)}" if one and event["kind"] in ("opened", "grown") else ""
        )
        why = f" ({markdown.text(event['reason'])})" if event["kind"] == "ended" else ""
        lines.append(
            f"- night {str(event['seen'])[:16]}: **{event['kind']}** in {where}{size}{why}"
        )
    if not any(one.is_open for one in members):
        states = ", ".join(sorted({one.state for one in members}))
        lines += ["", f"Nothing of it is open any more ({states}), so this issue is closed."]
    return markdown.cut(lines, MOST_BYTES)
