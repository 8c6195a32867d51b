"""Parse requirement lines, hash their sources, and date old releases; nothing is installed."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from calendar import monthrange
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PackagingRequirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from benchkit.captured_process import run_captured
from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError
from benchkit.measure.secrets import redact_text, remember_secrets

#: A release that is older by this than the Dask of this interpreter is resolved as of its own
#: date: numpy 2 and pandas 3 broke releases that had no upper bound on them.
OLD_RELEASE_DAYS = 365
#: Packages whose release dates an environment.
DASK = ("dask", "distributed")
#: Names of benchkit in the package lists of runs; the second one until November 2026.
OWN_NAMES = ("dask-benchkit", "benchkit")
#: Folders that are no part of the source.
_NOT_SOURCE = {".git", "__pycache__", ".venv", "venv", "build", "dist", "node_modules", ".tox"}


@dataclass(frozen=True)
class Requirement:
    """A parsed requirement line."""

    text: str  # The line for the resolver, with the absolute path of a local source
    name: str = ""  # Normalised name, or "" where only the source defines it
    kind: str = "index"  # Kind of source
    # Allowed versions, for kind "index".
    specifier: SpecifierSet = field(default_factory=SpecifierSet)
    source: str = ""  # Path or address, for the other kinds


def parse_requirement(line: str, folder: Path) -> Requirement:
    """Read one requirement line as pip does."""
    text = re.sub(r"(^|\s)#.*$", "", line).strip()
    safe_text = redacted(text)
    option = re.match(r"(-e|--editable)[\s=]+(.*)", text)
    if option:
        where = option[2].strip()
        if where.startswith("git+"):
            return _from_address("", where)
        return _from_path(where, folder, editable=True)
    if text.startswith("-"):
        raise InvalidEnvironmentError(
            f"{safe_text!r}: only the pip option -e is supported; configure indexes of uv, "
            "for example with UV_INDEX_URL"
        )
    if text.startswith(("git+", "http://", "https://")):
        return _from_address("", text)
    if text.startswith((".", "/", "~", "file://")):
        return _from_path(text, folder)
    try:
        parsed = PackagingRequirement(text)
    except InvalidRequirement as error:
        problem = str(error).splitlines()[0]
        raise InvalidEnvironmentError(
            f"{safe_text!r} is not a pip requirement line: {problem}"
        ) from error
    name = canonicalize_name(parsed.name)
    if parsed.url is None:
        return Requirement(text, name, specifier=parsed.specifier)
    if parsed.url.startswith("file:") or "://" not in parsed.url:
        local = _from_path(parsed.url, folder)
        extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
        return Requirement(f"{name}{extras} @ {Path(local.source).as_uri()}", name, "path",
                           source=local.source)  # fmt: skip
    kind = _from_address(name, parsed.url).kind
    return Requirement(text, name, kind, source=parsed.url)


def _from_address(name: str, address: str) -> Requirement:
    kind = "git" if address.startswith("git+") else "url"
    if not name and kind == "git":
        egg = re.search(r"[#&]egg=([\w.-]+)", "#" + address.partition("#")[2])
        last = git_address(address)[0].rstrip("/").rsplit("/", 1)[-1]
        name = canonicalize_name(egg[1] if egg else last.removesuffix(".git"))
    return Requirement(address, name, kind, source=address)


def git_address(address: str) -> tuple[str, str]:
    """Split the address of a git requirement; an ``@`` before the path is a login."""
    parts = urlsplit(address.removeprefix("git+"))
    path, _, ref = parts.path.partition("@")
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")), ref


def _from_path(text: str, folder: Path, *, editable: bool = False) -> Requirement:
    extras = re.search(r"\[[\w,\s.-]+\]$", text)
    bare = text[: extras.start()] if extras else text
    path = Path(os.path.expanduser(bare.removeprefix("file://")))
    path = Path(os.path.abspath(folder / path))
    flag = "-e " if editable else ""
    if not path.exists():
        raise InvalidEnvironmentError(f"{text!r}: no such folder or file: {path}")
    if path.is_dir() and not any((path / n).exists() for n in ("pyproject.toml", "setup.py")):
        raise InvalidEnvironmentError(f"{text!r}: {path} contains no pyproject.toml or setup.py")
    return Requirement(
        f"{flag}{path}{extras[0] if extras else ''}", _project_name(path), "path", source=str(path)
    )


def _project_name(path: Path) -> str:
    """Return the name that a local source declares, or ""."""
    if path.is_file():
        return canonicalize_name(path.name.split("-")[0]) if path.suffix == ".whl" else ""
    declared = path / "pyproject.toml"
    if not declared.is_file():
        return ""
    project = re.search(
        r"^\[project\]\s*$(.*?)(?=^\[|\Z)", declared.read_text(encoding="utf-8"), re.S | re.M
    )
    name = re.search(r"^name\s*=\s*[\"']([\w.-]+)[\"']", project[1], re.M) if project else None
    return canonicalize_name(name[1]) if name else ""


def python_specifier(text: str) -> SpecifierSet:
    """Return the versions that ``3.11``, ``3.11.7`` or ``>=3.10,<3.12`` allow."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return SpecifierSet(f"=={text}.*")
    if re.fullmatch(r"\d+\.\d+\.\d+", text):
        return SpecifierSet(f"=={text}")
    return SpecifierSet(text)


def redacted(text: str, *others: str) -> str:
    """Return a text without the user names, passwords and tokens of addresses."""
    remember_secrets(others)
    return redact_text(text)


def source_states(requirements: Sequence[Requirement]) -> dict[str, str]:
    """Return the current state of each source: hash of its content, or commit of its branch."""
    return {
        redacted(requirement.text): _state(requirement)
        for requirement in requirements
        if requirement.kind in ("path", "git")
    }


def _state(requirement: Requirement) -> str:
    if requirement.kind == "path":
        return _content_hash(Path(requirement.source))
    address, ref = git_address(requirement.source)
    if re.fullmatch(r"[0-9a-f]{40}", ref):
        return ref
    try:
        variables = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        command = ["git", "ls-remote", address, ref or "HEAD"]
        done = run_captured(command, timeout=60, env=variables)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentBuildError(
            f"{redacted(requirement.text)}: git failed: {redacted(str(error), requirement.text)}"
        ) from error
    if done.returncode:
        problem = (done.stderr.strip().splitlines() or ["no output"])[-1]
        problem = redacted(problem, requirement.text)
        raise EnvironmentBuildError(f"{redacted(requirement.text)}: {problem}")
    # A server does not list short commits; a commit never changes.
    return " ".join(line.split()[0] for line in done.stdout.splitlines()) or ref


def _content_hash(path: Path) -> str:
    digest = hashlib.sha256()
    if path.is_file():
        digest.update(path.read_bytes())
        return digest.hexdigest()[:16]
    # The version of a source may be derived from its commit and tags.
    digest.update(_git(path, "describe", "--always", "--tags", "--long").encode())
    tracked = _git(path, "ls-files", "-co", "--exclude-standard", "-z")
    names = sorted(set(tracked.split("\0")) - {""}) if tracked else _walk(path)
    for name in names:
        file = path / name
        if file.is_file():
            digest.update(f"\0{name}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _walk(path: Path) -> list[str]:
    paths = []
    for folder, inner, names in os.walk(path):
        inner[:] = [n for n in inner if n not in _NOT_SOURCE and not n.endswith(".egg-info")]
        paths += [os.path.relpath(os.path.join(folder, name), path) for name in names]
    return sorted(name for name in paths if not name.endswith((".pyc", ".so")))


def _git(path: Path, *arguments: str) -> str:
    try:
        done = run_captured(["git", "-C", str(path), *arguments])
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def as_of(requirements: Sequence[Requirement], own: Mapping[str, str]) -> date | None:
    """Return the day as of which an old Dask release is resolved.

    Old Dask releases have no upper bounds: 2023.4.1 with a current NumPy cannot be imported. They
    are resolved as of 15 days after the month in their version.
    """
    released = [
        month
        for requirement in requirements
        if requirement.name in DASK and (month := _month(_pinned(requirement)))
    ]
    newest = _month(own.get("dask", "")) or date.today()
    if not released or (newest - min(released)).days <= OLD_RELEASE_DAYS:
        return None
    first = min(released)
    return first + timedelta(days=monthrange(first.year, first.month)[1] - 1 + 15)


def _pinned(requirement: Requirement) -> str:
    exact = [s.version for s in requirement.specifier if s.operator in ("==", "===")]
    return exact[0] if exact else ""


def _month(version: str) -> date | None:
    """Return the first day of the month that a calendar version names."""
    try:
        release = Version(version.removesuffix(".*")).release
        return date(release[0], release[1], 1) if release[0] >= 2021 else None
    except (InvalidVersion, IndexError, ValueError):
        return None
