"""Builds that a bisection searches: releases of a package in an index, or commits of a checkout.

Lists the builds in order, each with its requirement line. Does not build or measure, and does not
modify a checkout.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from benchkit.captured_process import run_captured
from benchkit.errors import EnvironmentBuildError, UsageError, did_you_mean
from benchkit.experiment.environment.builds import Candidate, pins_of
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.install import newest_release
from benchkit.experiment.environment.python import Interpreter, choose_python
from benchkit.experiment.environment.requirements import parse_requirement, redacted
from benchkit.private_folder import private_folder

#: Characters of a commit id in the name of an arm: short, and unique in Dask's history.
SHA_LENGTH = 10
#: Beginnings of the name of a tag, before the version of its release.
TAG_PREFIXES = ("", "v", "release-")


class Checkout(NamedTuple):
    """A package in a git repository."""

    folder: Path
    root: Path  # Of the repository
    package: str


def find_candidates(
    good: str | None,
    bad: str | None,
    base: Environment,
    *,
    package: str | None = None,
    git: str | Path | None = None,
    step: bool = False,
) -> list[Candidate]:
    """Return the builds to search, from the options of a user."""
    if package is None and git is None:
        raise UsageError(
            "name the package that changed: --package NAME (releases) or --git PATH (commits)"
        )
    if good is None or bad is None:
        raise UsageError("both ends are needed: --good V, from before the change, and --bad V")
    if package is not None:
        if step:
            raise UsageError("--git-step tests a commit: give --git PATH and no --package")
        python = choose_python(base.python, base.where("python"))
        releases = list_releases(package, good, bad, python)
        if git is not None:
            check_checkout(git, releases)
        return releases
    assert git is not None
    commits = list_commits(git, good, bad)
    return with_checked_out(commits, git) if step else commits


def list_releases(package: str, good: str, bad: str, python: Interpreter) -> list[Candidate]:
    """Return the releases of a package from one version to another, the oldest first.

    These are the releases that uv would install for this Python from its configured index: no
    pre-releases and no yanked releases. Dask and distributed are released together, and
    both are pinned to the same version.
    """
    name = canonicalize_name(package)
    try:
        reversed_ends = Version(good) >= Version(bad)
    except InvalidVersion as error:
        raise UsageError(f"--package {package}: {error}: give release versions") from error
    if reversed_ends:
        raise UsageError(f"--good {good} --bad {bad}: the good release must be the older one")
    where = f"--package {name}"
    versions: list[str] = []
    with private_folder() as folder:
        upper = f"<={bad}"
        # One request per release: uv cannot list releases, but it knows the user's index, logins
        # and the releases for this Python. 40 ms each when cached.
        while newest := newest_release(
            f"{name}>={good},{upper}", python, folder=Path(folder), where=where
        ):
            versions.append(newest)
            upper = f"<{newest}"
        if not versions and not newest_release(name, python, folder=Path(folder), where=where):
            installed = [str(item.name) for item in distributions()]
            hint = did_you_mean(name, installed, "see `benchkit env show current`")
            raise UsageError(
                f"{where}: the index has no release for Python {python.version}: {hint}"
            )
    for option, version in (("--bad", bad), ("--good", good)):
        if Version(version) not in map(Version, versions):
            near = ", ".join(versions[:3] if option == "--bad" else versions[-3:])
            hint = f"near it are {near}"
            if not versions:
                hint = "it has none between the two"
                installed = [str(item.name) for item in distributions()]
                if name not in installed:  # mistyped, and there is such a package
                    hint = did_you_mean(name, installed, hint)
            raise UsageError(
                f"{option} {version}: the index has no such release of {name} for Python "
                f"{python.version}: {hint}"
            )
    return [
        Candidate(version, f"{name} {version}", pins_of(name, version))
        for version in reversed(versions)
    ]


def read_checkout(path: str | Path) -> Checkout:
    """Return the package that is checked out in a folder."""
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"--git {path}: no such folder")
    root = Path(_git(folder, "rev-parse", "--show-toplevel", message=f"--git {path}"))
    name = parse_requirement(str(folder), folder).name
    if not name:
        raise UsageError(f"--git {path}: its pyproject.toml has no [project] name")
    return Checkout(folder, root, name)


def check_checkout(path: str | Path, releases: Sequence[Candidate]) -> None:
    """Raise if a search for a release cannot end between two releases of a checkout's package."""
    package = read_checkout(path).package
    first, last = (releases[place].pins.get(package) for place in (0, -1))
    if first == last:
        raise UsageError(f"--git {path}: contains {package}, which is the same at both ends")


def list_release_commits(path: str | Path, good: str, bad: str) -> list[Candidate]:
    """Return the commits of a checkout between two releases of its package, the oldest first."""
    folder, where = read_checkout(path).folder, f"--git {path}"
    return list_commits(path, *(_tag(folder, version, where) for version in (good, bad)))


def list_commits(path: str | Path, good: str, bad: str) -> list[Candidate]:
    """Return the commits of a checkout between two, along first parents, the oldest first."""
    folder, root, name = read_checkout(path)
    first, last = (
        _git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}",
             message=f"{option} {ref}: {path} has no such commit")
        for option, ref in (("--good", good), ("--bad", bad))
    )  # fmt: skip
    if first == last:
        raise UsageError(f"--good {good} --bad {bad}: are the same commit")
    _git(
        folder, "merge-base", "--is-ancestor", first, last,
        message=f"--good {good} --bad {bad}: the good commit must be an ancestor of the bad one",
    )  # fmt: skip
    listed = _git(folder, "rev-list", "--first-parent", "--reverse", f"{first}..{last}",
                  message=f"--git {path}")  # fmt: skip
    inside = os.path.relpath(folder, root)
    subdirectory = "" if inside == "." else f"#subdirectory={inside}"
    return [
        Candidate(
            sha[:SHA_LENGTH],
            f"{name} {sha[:SHA_LENGTH]} {_subject(folder, sha)}",
            {name: f" @ git+{root.as_uri()}@{sha}{subdirectory}"},
            sha,
        )
        for sha in [first, *listed.split()]
    ]


def with_checked_out(candidates: Sequence[Candidate], path: str | Path) -> list[Candidate]:
    """Return the ends and the checked-out commit, for a step of ``git bisect run``."""
    first, last = candidates[0], candidates[-1]
    sha = _git(Path(path), "rev-parse", "--verify", "HEAD", message=f"--git {path}")
    if sha in (first.sha, last.sha):
        raise UsageError(
            f"--git-step: {sha[:SHA_LENGTH]} is an end: check out a commit between the ends"
        )
    # Pinned by id, not taken from the list: git bisect also visits commits of merged branches,
    # which are not first parents.
    pins = {name: pin.replace(first.sha, sha) for name, pin in first.pins.items()}
    title = f"{next(iter(pins))} {sha[:SHA_LENGTH]} {_subject(Path(path), sha)}"
    return [first, Candidate(sha[:SHA_LENGTH], title, pins, sha), last]


def _tag(folder: Path, version: str, where: str) -> str:
    """Return the name of the tag of a release."""
    names = [f"{prefix}{version}" for prefix in TAG_PREFIXES]
    found = _git(folder, "tag", "--list", *names, message=where).split()
    if not found:
        raise UsageError(
            f"{where}: has no tag {' or '.join(names[:2])}: `git fetch --tags` gets them"
        )
    return f"refs/tags/{min(found, key=len)}"


def _subject(folder: Path, sha: str) -> str:
    text = _git(folder, "log", "-1", "--format=%s", sha, message=f"{sha}: no such commit")
    return re.sub(r"[^\x20-\x7e\u00a0-\uffff]", "", text)[:60]


def _git(folder: Path, *arguments: str, message: str) -> str:
    try:
        done = run_captured(["git", "-C", str(folder), *arguments])
    except OSError as error:
        raise EnvironmentBuildError(f"git cannot be started: {error}") from error
    if done.returncode:
        problem = redacted((done.stderr.strip().splitlines() or [""])[-1])
        raise UsageError(f"{message}: {problem}" if problem else message)
    return done.stdout.strip()
