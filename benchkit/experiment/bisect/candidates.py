"""Builds that a bisection searches: releases of a package in an index, or commits of a checkout.

Lists the builds in order, each with its requirement line. Does not build or measure, and does not
modify a checkout.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from benchkit.errors import EnvironmentBuildError, UsageError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.install import newest_release
from benchkit.experiment.environment.python import Interpreter, choose_python
from benchkit.experiment.environment.requirements import DASK, parse_requirement, redacted

__all__ = ["Candidate", "beside_head", "find_candidates", "list_commits", "list_releases"]

#: Characters of a commit id in the name of an arm: short, and unique in Dask's history.
N_SHA = 10


@dataclass(frozen=True)
class Candidate:
    """One build to search.

    Attributes
    ----------
    name : str
        Name of the arm: a version, or the beginning of a commit id.
    title : str
        Text for messages.
    pins : mapping of str to str
        Package name -> text after the name in a requirement: ``==2024.5.0``, `` @ git+file:...``.
    sha : str
        Full commit id; "" for a release.
    """

    name: str
    title: str
    pins: Mapping[str, str]
    sha: str = ""


def find_candidates(
    good: str | None,
    bad: str | None,
    base: Environment,
    *,
    package: str | None = None,
    git: str | Path | None = None,
    step: bool = False,
) -> list[Candidate]:
    """Return the builds to search, from the options of a user.

    Parameters
    ----------
    good, bad : str
        Release or commit before and after the change.
    base : Environment
        Releases must support its Python version.
    package, git : str, path
        Releases of this package, or commits of this checkout.
    step : bool, default False
        Return only the ends and the checked-out commit.

    Raises
    ------
    UsageError
        An end or a package is missing or does not exist, or the ends are in the wrong order.
    EnvironmentBuildError
        The package index is not reachable, or git is not installed.
    """
    if (package is None) == (git is None):
        raise UsageError("name what changed: --package NAME (releases) or --git PATH (commits)")
    if good is None or bad is None:
        raise UsageError("both ends are needed: --good V, from before the change, and --bad V")
    if package is not None:
        if step:
            raise UsageError("--git-step judges a commit: it goes with --git PATH")
        python = choose_python(base.python, base.where("python"))
        return list_releases(package, good, bad, python)
    assert git is not None
    commits = list_commits(git, good, bad)
    return beside_head(commits, git) if step else commits


def list_releases(package: str, good: str, bad: str, python: Interpreter) -> list[Candidate]:
    """Return the releases of a package from one version to another, the oldest first.

    These are the releases that uv would install for this Python from its configured index: no
    pre-releases and no yanked releases. Dask and distributed are released together, and
    both are pinned to the same version.

    Raises
    ------
    UsageError
        The package has no such release, or the ends are in the wrong order.
    EnvironmentBuildError
        The package index is not reachable.
    """
    name = canonicalize_name(package)
    try:
        wrong = Version(good) >= Version(bad)
    except InvalidVersion as error:
        raise UsageError(f"--package {package}: {error}: name releases") from error
    if wrong:
        raise UsageError(f"--good {good} --bad {bad}: the good release must be the older one")
    where = f"--package {name}"
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="benchkit-") as folder:
        upper = f"<={bad}"
        # One request per release: uv cannot list releases, but it knows the user's index, logins
        # and the releases for this Python. 40 ms each when cached.
        while newest := newest_release(
            f"{name}>={good},{upper}", python, folder=Path(folder), where=where
        ):
            found.append(newest)
            upper = f"<{newest}"
    for option, version in (("--bad", bad), ("--good", good)):
        if Version(version) not in map(Version, found):
            near = ", ".join(found[:3] if option == "--bad" else found[-3:])
            hint = f"there is {near}" if found else "none at all between the two"
            raise UsageError(
                f"{option} {version}: the index has no such release of {name} for Python "
                f"{python.version}: {hint}"
            )
    names = DASK if name in DASK else (name,)
    return [
        Candidate(version, f"{name} {version}", {each: f"=={version}" for each in names})
        for version in reversed(found)
    ]


def list_commits(path: str | Path, good: str, bad: str) -> list[Candidate]:
    """Return the commits of a checkout from one to another along first parents, the oldest first.

    Raises
    ------
    UsageError
        The folder is no checkout of a package, has no such commit, or the good commit is not an
        ancestor of the bad one.
    EnvironmentBuildError
        git is not installed.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"--git {path}: no such folder")
    root = Path(_git(folder, "rev-parse", "--show-toplevel", refusal=f"--git {path}"))
    name = parse_requirement(str(folder), folder).name
    if not name:
        raise UsageError(f"--git {path}: its pyproject.toml does not say [project] name")
    first, last = (
        _git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}",
             refusal=f"{option} {ref}: {path} has no such commit")
        for option, ref in (("--good", good), ("--bad", bad))
    )  # fmt: skip
    if first == last:
        raise UsageError(f"--good {good} --bad {bad}: are one commit")
    _git(
        folder, "merge-base", "--is-ancestor", first, last,
        refusal=f"--good {good} --bad {bad}: the good commit must be an ancestor of the bad one",
    )  # fmt: skip
    listed = _git(folder, "rev-list", "--first-parent", "--reverse", f"{first}..{last}",
                  refusal=f"--git {path}")  # fmt: skip
    inside = os.path.relpath(folder, root)
    subdirectory = "" if inside == "." else f"#subdirectory={inside}"
    return [
        Candidate(
            sha[:N_SHA],
            f"{name} {sha[:N_SHA]} {_subject(folder, sha)}",
            {name: f" @ git+{root.as_uri()}@{sha}{subdirectory}"},
            sha,
        )
        for sha in [first, *listed.split()]
    ]


def beside_head(candidates: Sequence[Candidate], path: str | Path) -> list[Candidate]:
    """Return the ends and the checked-out commit, for a step of ``git bisect run``.

    Raises
    ------
    UsageError
        The checked-out commit is one of the ends.
    """
    first, last = candidates[0], candidates[-1]
    sha = _git(Path(path), "rev-parse", "--verify", "HEAD", refusal=f"--git {path}")
    if sha in (first.sha, last.sha):
        raise UsageError(f"--git-step: {sha[:N_SHA]} is an end: `git bisect` checks out others")
    # Pinned by id, not taken from the list: git bisect also visits commits of merged branches,
    # which are not first parents.
    pins = {name: pin.replace(first.sha, sha) for name, pin in first.pins.items()}
    title = f"{next(iter(pins))} {sha[:N_SHA]} {_subject(Path(path), sha)}"
    return [first, Candidate(sha[:N_SHA], title, pins, sha), last]


def _subject(folder: Path, sha: str) -> str:
    text = _git(folder, "log", "-1", "--format=%s", sha, refusal=f"{sha[:N_SHA]}: no such commit")
    return re.sub(r"[^\x20-\x7e\u00a0-\uffff]", "", text)[:60]


def _git(folder: Path, *arguments: str, refusal: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise EnvironmentBuildError(f"git cannot be started: {error}") from error
    if done.returncode:
        said = redacted((done.stderr.strip().splitlines() or [""])[-1])
        raise UsageError(f"{refusal}: {said}" if said else refusal)
    return done.stdout.strip()
