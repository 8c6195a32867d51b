"""Trackers of issues: GitHub through its REST API, or Markdown files for other services."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchkit.errors import BenchkitError, MissingExtra, UsageError
from benchkit.show.issues.sync import LABEL, Issue

__all__ = ["FileTracker", "TrackerError", "GitHubTracker", "tracker_for"]

TOKEN, REPOSITORY, API = "GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_API_URL"


class TrackerError(BenchkitError):
    """Raised when a tracker rejects a request; the ledger is kept and the next night retries."""


def tracker_for(kind: str, folder: str | Path) -> GitHubTracker | FileTracker | None:
    """Return the tracker for a value of ``--issues``: github, file or none."""
    if kind == "github":
        return GitHubTracker()
    return FileTracker(folder) if kind == "file" else None


class GitHubTracker:
    """Issues of a repository on GitHub.

    Parameters
    ----------
    repository : str, optional
        ``owner/name``; by default ``$GITHUB_REPOSITORY``, as GitHub Actions sets it.

    Raises
    ------
    UsageError
        There is no token (``$GITHUB_TOKEN``) or no repository.
    MissingExtra
        PyGithub is not installed.
    """

    def __init__(self, repository: str | None = None) -> None:
        try:
            import github
        except ImportError as error:
            raise MissingExtra("github", "PyGithub") from error
        name = repository or os.environ.get(REPOSITORY, "")
        token = os.environ.get(TOKEN, "")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UsageError(f"--issues github: ${REPOSITORY} must be OWNER/NAME, not {name!r}")
        if not token:
            raise UsageError(f"--issues github: set ${TOKEN} to a token that may write issues")
        self._trouble = github.GithubException
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
        """Return all issues with benchkit's label, open and closed."""
        return [
            self._known(issue)
            for issue in self._try(
                lambda: list(self._repository.get_issues(state="all", labels=[LABEL]))
            )
            if issue.pull_request is None
        ]

    def create(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Open an issue; GitHub creates missing labels."""
        found = self._try(
            lambda: self._repository.create_issue(title, body=body, labels=list(labels))
        )
        return self._known(found)

    def edit(self, issue: Issue, *, body: str | None = None, is_open: bool | None = None) -> None:
        """Change the body or the state of an issue; None keeps the value."""
        changes: dict[str, Any] = {}
        if body is not None and body != issue.body:
            changes["body"] = issue.body = body
        if is_open is not None and is_open != issue.is_open:
            issue.is_open = is_open
            changes["state"] = "open" if is_open else "closed"
            changes["state_reason"] = "reopened" if is_open else "completed"
        if changes:
            self._try(lambda: self._issues[issue.number].edit(**changes))

    def comment(self, issue: Issue, body: str) -> None:
        """Add a comment to an issue."""
        self._try(lambda: self._issues[issue.number].create_comment(body))

    def _known(self, found: Any) -> Issue:
        self._issues[found.number] = found
        labels = tuple(label.name for label in found.labels)
        return Issue(found.number, found.title, found.body or "", found.state == "open", labels)

    def _try(self, ask: Any) -> Any:
        """Send a request; raise errors as one line without the token."""
        try:
            return ask()
        except self._trouble as error:
            data = error.data if isinstance(error.data, dict) else {}
            said = data.get("message") or str(error.data or "")
            raise TrackerError(f"GitHub answered {error.status}: {said[:200]}") from None
        except OSError as error:  # requests' errors are OSErrors; their text may name addresses
            raise TrackerError(f"GitHub does not answer: {type(error).__name__}") from None


class FileTracker:
    """Issues as Markdown files in a folder; the first line is JSON for scripts.

    Parameters
    ----------
    folder : path
        Folder of the files, one ``.md`` file per issue.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def issues(self) -> list[Issue]:
        """Return all issues, open and closed."""
        return [self._read(path) for path in sorted(self.folder.glob("*.md"))]

    def create(self, title: str, body: str, labels: Sequence[str]) -> Issue:
        """Open an issue; its file name contains its marker, which is unique."""
        stem = re.sub(r"[^\w.-]+", "-", title.partition(":")[0]).strip("-")[:80]
        name = body.partition("regression:")[2][:16]
        issue = Issue(f"{stem}-{name}", title, body, True, tuple(labels))
        self._write(issue, "")
        return issue

    def edit(self, issue: Issue, *, body: str | None = None, is_open: bool | None = None) -> None:
        """Change the body or the state of an issue; None keeps the value."""
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
        facts = json.loads(head.removeprefix("<!-- ").removesuffix(" -->"))
        body = rest.partition(_COMMENTS)[0].partition("\n\n")[2]
        return Issue(path.stem, facts["title"], body, facts["state"] == "open", facts["labels"])

    def _write(self, issue: Issue, comments: str) -> None:
        state = "open" if issue.is_open else "closed"
        facts = {"title": issue.title, "state": state, "labels": list(issue.labels)}
        # Escape ">" so that a title cannot end the HTML comment that contains the JSON.
        head = json.dumps(facts).replace(">", "\\u003e")
        content = f"<!-- {head} -->\n# {issue.title}\n\n{issue.body}{_COMMENTS}{comments}"
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self._path(issue).with_suffix(".draft")
        draft.write_text(content, encoding="utf-8")
        draft.replace(self._path(issue))


_COMMENTS = "\n<!-- benchkit:comments -->\n"
