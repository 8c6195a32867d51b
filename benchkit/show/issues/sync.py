"""Keep one issue on GitHub per workload and metric: opened, updated, closed on recovery.

A hidden marker identifies an issue, so its title may be changed by hand. A second hidden marker
holds the last reported event of the ledger, so that a repeated call changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from benchkit.analysis.regression.regression import FAILING, Regression
from benchkit.errors import BenchkitError, UsageError, needs_extra
from benchkit.formatting import format_change
from benchkit.show.pages.page import site_address
from benchkit.show.pages.regressions import REPORTED, regression_page, regression_target
from benchkit.show.render.markdown import no_address, section_markdown
from benchkit.show.templates import render_template
from benchkit.store.schema import METRICS
from benchkit.text import cut_markdown, markdown_text

if TYPE_CHECKING:
    import github

T = TypeVar("T")
#: Environment variables of the token, of ``owner/name`` and of the URL of the API.
TOKEN, REPOSITORY, API = "GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_API_URL"
#: Label of every issue that benchkit opens; issues without it are ignored.
LABEL = "performance-regression"
#: Maximum bytes of a body or comment: GitHub's limit is 65,536 characters, at least a byte each.
MAX_BYTES = 65_000
#: Maximum characters of a title; GitHub allows 256.
MAX_TITLE = 200


@dataclass
class Issue:
    """The fields of an issue that benchkit uses."""

    number: int
    title: str  # title, body: Texts; the body is Markdown and starts with the hidden markers
    body: str
    is_open: bool  # Whether the issue is open
    labels: Sequence[str] = field(default_factory=tuple)  # Names of its labels


class TrackerError(BenchkitError):
    """Raised when a tracker rejects a request; the ledger is kept and the next night retries."""


class GitHubTracker:
    """Issues of a repository on GitHub."""

    def __init__(self, repository: str | None = None) -> None:
        with needs_extra("github", "PyGithub"):
            import github
        name = repository or os.environ.get(REPOSITORY, "")
        token = os.environ.get(TOKEN, "")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UsageError(f"--issues github: ${REPOSITORY} must be OWNER/NAME, not {name!r}")
        if not token:
            raise UsageError(f"--issues github: set ${TOKEN} to a token that can write issues")
        self._error_type = github.GithubException
        base = os.environ.get(API, "https://api.github.com")
        # GitHub asks for 1 s between writes; other servers need no delay.
        wait = 1.0 if "github.com" in base else 0.0
        client = github.Github(
            base_url=base,
            auth=github.Auth.Token(token),
            per_page=100,
            timeout=30,
            seconds_between_writes=wait,
            seconds_between_requests=wait / 4,
            lazy=True,
        )
        self._repository = client.get_repo(name)
        self._issues: dict[int, Any] = {}

    def issues(self) -> list[Issue]:
        """Return the issues of benchkit."""
        return [
            self._add(issue)
            for issue in self._send(
                lambda: list(self._repository.get_issues(state="all", labels=[LABEL]))
            )
            if issue.pull_request is None
        ]

    def create(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Open an issue; GitHub creates missing labels."""
        return self._add(
            self._send(lambda: self._repository.create_issue(title, body=body, labels=list(labels)))
        )

    def edit(self, issue: Issue, *, body: str | None = None, is_open: bool | None = None) -> None:
        """Change the body or the state of an issue."""
        changes: dict[str, Any] = {}
        if body is not None and body != issue.body:
            changes["body"] = issue.body = body
        if is_open is not None and is_open != issue.is_open:
            issue.is_open = is_open
            changes["state"] = "open" if is_open else "closed"
            changes["state_reason"] = "reopened" if is_open else "completed"
        if changes:
            self._send(lambda: self._issues[issue.number].edit(**changes))

    def comment(self, issue: Issue, body: str) -> None:
        """Add a comment to an issue."""
        self._send(lambda: self._issues[issue.number].create_comment(body))

    def _add(self, issue: github.Issue.Issue) -> Issue:
        self._issues[issue.number] = issue
        labels = tuple(label.name for label in issue.labels)
        return Issue(issue.number, issue.title, issue.body or "", issue.state == "open", labels)

    def _send(self, request: Callable[[], T]) -> T:
        """Send a request; raise errors as one line without the token."""
        try:
            return request()
        except self._error_type as error:
            data = error.data if isinstance(error.data, dict) else {}
            message = data.get("message") or str(error.data or "")
            raise TrackerError(f"GitHub: status {error.status}: {message[:200]}") from None
        except OSError as error:  # requests' errors are OSErrors; their text may name addresses
            raise TrackerError(f"GitHub: no response: {type(error).__name__}") from None


def marker(workload: str, metric: str) -> str:
    """Return the hidden text that identifies an issue."""
    name = hashlib.sha256(f"{workload}\n{metric}".encode()).hexdigest()[:16]
    return f"<!-- benchkit:regression:{name} -->"


def sync_issues(
    regressions: Sequence[Regression],
    tracker: GitHubTracker,
    *,
    site: str | None = None,
    owners: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Update the issues of a tracker to match the ledger.

    Notes
    -----
    An issue that a person closed stays closed until the ledger has a new reportable event.
    """
    by_marker: dict[str, list[Issue]] = {}
    for issue in tracker.issues():
        match = re.search(r"<!-- benchkit:regression:[0-9a-f]{16} -->", issue.body)
        if match:
            by_marker.setdefault(match[0], []).append(issue)
    actions: list[str] = []
    groups: dict[tuple[str, str], list[Regression]] = {}
    for regression in regressions:
        groups.setdefault((regression.workload, regression.metric), []).append(regression)
    for (workload, metric), members in sorted(groups.items()):
        members.sort(key=lambda regression: (not regression.is_open, regression.seen))
        issues = by_marker.get(marker(workload, metric), [])
        issues.sort(key=lambda issue: issue.number)
        body = issue_body(members, site=site, owners=owners)
        actions += _sync_issue(members, issues[0] if issues else None, tracker, body)
        for duplicate in issues[1:]:  # two jobs opened the same issue at the same time
            if duplicate.is_open:
                text = f"duplicate of {issues[0].number}"
                tracker.comment(duplicate, f"Closed as {text}.")
                tracker.edit(duplicate, is_open=False)
                actions.append(f"closed {duplicate.number}: {text}")
    return actions


def _sync_issue(
    members: Sequence[Regression], issue: Issue | None, tracker: GitHubTracker, body: str
) -> list[str]:
    is_open = any(regression.is_open for regression in members)
    title = issue_title(members)
    if issue is None:
        if not is_open:  # the regression ended before an issue was opened
            return []
        issue = tracker.create(title, body, _labels(members))
        return [f"opened {issue.number}: {title}"]
    actions = []
    new = [event for event in _events(members) if str(event["id"]) > _last_reported(issue.body)]
    # Without a new reportable event the body is not edited: it shows the last reported state.
    if new:
        reopened = is_open and not issue.is_open
        tracker.comment(issue, _comment(new, members))
        tracker.edit(issue, body=body, is_open=True if reopened else None)
        actions.append(f"{'reopened' if reopened else 'updated'} {issue.number}: {title}")
    if not is_open and issue.is_open:
        if not new:  # accepted by a mark
            tracker.comment(issue, _comment([], members))
            tracker.edit(issue, body=body)
        tracker.edit(issue, is_open=False)
        actions.append(f"closed {issue.number}: {title}")
    return actions


def issue_title(members: Sequence[Regression]) -> str:
    """Return the title of the issue of one workload and metric."""
    first = members[0]
    if first.metric == FAILING:
        change = "fails"
    else:
        change = f"{METRICS[first.metric].long_name} {format_change(first.ratio)}"
    title = f"{first.workload}: {change} since {first.night[:10]}"
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1] + "…"


def issue_body(
    members: Sequence[Regression],
    *,
    site: str | None = None,
    owners: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the text of the issue of regressions of one workload and metric."""
    current = [regression for regression in members if regression.is_open] or members[:1]
    past = [regression for regression in members if regression not in current]
    reported = max((str(event["id"]) for event in _events(members)), default="")
    parts = [f"{marker(members[0].workload, members[0].metric)}\n<!-- benchkit:told:{reported} -->"]
    href = partial(site_address, site.rstrip("/") + "/") if site else no_address
    for regression in current:
        page = regression_page(regression, owners.get(regression.workload, ""))
        parts += [section_markdown(section, href) for section in page.sections]
        if address := href(regression_target(regression)):
            parts.append(f"[All nights of this regression]({address})")
    if past:
        parts.append("### Earlier regressions")
        lines = [f"- {each.state}: {markdown_text(each.title)}" for each in past]
        parts.append("\n".join(lines))
    return cut_markdown("\n\n".join(parts), MAX_BYTES)


def _labels(members: Sequence[Regression]) -> list[str]:
    return [LABEL, "failure" if members[0].metric == FAILING else members[0].metric]


def _events(members: Sequence[Regression]) -> list[Mapping[str, Any]]:
    events = [e for regression in members for e in regression.events if e["kind"] in REPORTED]
    return sorted(events, key=lambda event: str(event["id"]))


def _last_reported(body: str) -> str:
    """Return the id of the last event that an issue reports."""
    match = re.search(r"<!-- benchkit:told:([0-9a-f-]*) -->", body)
    return match[1] if match else ""


def _comment(events: Sequence[Mapping[str, Any]], members: Sequence[Regression]) -> str:
    by_id = {regression.id: regression for regression in members}
    is_open = any(regression.is_open for regression in members)
    ended = [] if is_open else sorted({regression.state for regression in members})
    text = render_template("issues/comment.md", events=events, by_id=by_id, ended=ended)
    return cut_markdown(text, MAX_BYTES)
