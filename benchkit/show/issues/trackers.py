"""Trackers of issues: GitHub by its REST API, or Markdown files for other services."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchkit.errors import BenchkitError, UsageError, needs_extra
from benchkit.show.issues.sync import LABEL, Issue
from benchkit.whole_file import write_whole

if TYPE_CHECKING:
    import github

T = TypeVar("T")
#: Environment variables of the token, of ``owner/name`` and of the URL of the API.
TOKEN, REPOSITORY, API = "GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_API_URL"
_COMMENTS = "\n<!-- benchkit:comments -->\n"


class TrackerError(BenchkitError):
    """Raised when a tracker rejects a request; the ledger is kept and the next night retries."""


def tracker_for(kind: str, folder: str | Path) -> GitHubTracker | FileTracker | None:
    """Return a tracker."""
    if kind == "github":
        return GitHubTracker()
    return FileTracker(folder) if kind == "file" else None


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
        self._issues: dict[int | str, Any] = {}

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


class FileTracker:
    """Issues as Markdown files in a folder; the first line is JSON for scripts."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def issues(self) -> list[Issue]:
        """Return the issues of the folder."""
        return [self._read(path) for path in sorted(self.folder.glob("*.md"))]

    def create(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Open an issue; its file name contains its marker, which is unique."""
        stem = re.sub(r"[^\w.-]+", "-", title.partition(":")[0]).strip("-")[:80]
        name = body.partition("regression:")[2][:16]
        issue = Issue(f"{stem}-{name}", title, body, True, tuple(labels))
        self._write(issue, "")
        return issue

    def edit(self, issue: Issue, *, body: str | None = None, is_open: bool | None = None) -> None:
        """Change the body or the state of an issue."""
        issue.body = issue.body if body is None else body
        issue.is_open = issue.is_open if is_open is None else is_open
        self._write(issue, self._comments(issue))

    def comment(self, issue: Issue, body: str) -> None:
        """Append a comment to the file of an issue."""
        self._write(issue, f"{self._comments(issue)}\n---\n\n{body}")

    def _path(self, issue: Issue) -> Path:
        return self.folder / f"{issue.number}.md"

    def _comments(self, issue: Issue) -> str:
        return self._path(issue).read_text(encoding="utf-8").partition(_COMMENTS)[2]

    def _read(self, path: Path) -> Issue:
        head, _, rest = path.read_text(encoding="utf-8").partition("\n")
        fields = json.loads(head.removeprefix("<!-- ").removesuffix(" -->"))
        body = rest.partition(_COMMENTS)[0].partition("\n\n")[2]
        return Issue(path.stem, fields["title"], body, fields["state"] == "open", fields["labels"])

    def _write(self, issue: Issue, comments: str) -> None:
        state = "open" if issue.is_open else "closed"
        fields = {"title": issue.title, "state": state, "labels": list(issue.labels)}
        # Escape ">" so that a title cannot end the HTML comment that contains the JSON.
        head = json.dumps(fields).replace(">", "\\u003e")
        content = f"<!-- {head} -->\n# {issue.title}\n\n{issue.body}{_COMMENTS}{comments}"
        write_whole(self._path(issue), content)
