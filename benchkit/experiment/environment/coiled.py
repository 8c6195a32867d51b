"""Read the A/B environments of coiled/benchmarks: `AB_<name>.conda|dask|cluster.yaml`.

Each name becomes one environment file. What has no equivalent is told, never dropped in silence;
nothing is overwritten, and nothing is written before everything has been read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from benchkit.errors import InvalidEnvironmentError, UsageError
from benchkit.experiment.environment.conda_specs import translate
from benchkit.experiment.environment.file import read_environment_file
from benchkit.experiment.environment.requirements import parse_requirement

__all__ = ["Imported", "import_reference"]

_FILE = re.compile(
    r"AB_(?P<name>.+)\.(?P<kind>conda\.yaml|dask\.yaml|cluster\.yaml|requirements\.in)"
)
#: What the default cluster of all tests is called there.
_MAIN = ("default", "small_cluster")
_HAVE = {"conda-forge", "defaults", "nodefaults"}
_CLUSTER = "coiled.Cluster"


@dataclass
class Imported:
    """One environment: its file, what it was made of, and what could not be taken over."""

    name: str
    path: Path
    sources: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a flat row."""
        return {
            "name": self.name,
            "path": str(self.path),
            "sources": self.sources,
            "warnings": self.warnings,
        }


def import_reference(folder: Path, target: Path) -> list[Imported]:
    """Write an environment file for each name in a folder of the reference.

    Parameters
    ----------
    folder : path
        ``AB_environments`` of a checkout; ``cluster_kwargs.yaml`` is looked for in it and beside
        it.
    target : path
        Where the files are written.

    Returns
    -------
    list of Imported
        By name.

    Raises
    ------
    UsageError
        There are no such files, or a file of that name is there already: nothing is written.
    InvalidEnvironmentError
        A file cannot be read: nothing is written.
    """
    groups: dict[str, dict[str, Path]] = {}
    strangers = []
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match:
            groups.setdefault(match["name"], {})[match["kind"].partition(".")[0]] = path
        elif path.name.startswith("AB_"):
            strangers.append(path.name)
    if not groups:
        raise UsageError(f"{folder}: no files AB_<name>.conda.yaml, .dask.yaml or .cluster.yaml")
    base = _cluster_base(folder)
    found = [_read(name, files, base, target) for name, files in groups.items()]
    found[0].warnings[:0] = [
        f"{folder / name}: none of conda, dask, cluster: left out" for name in strangers
    ]
    taken = [str(entry.path) for entry in found if entry.path.exists()]
    if taken:
        raise UsageError(
            f"{', '.join(taken)}: there already, and not overwritten; nothing was imported: "
            "give another folder with --environments"
        )
    target.mkdir(parents=True, exist_ok=True)
    for entry in found:
        head = f"# Imported from {', '.join(entry.sources)} of coiled/benchmarks.\n"
        text = yaml.safe_dump(entry.content, sort_keys=False, width=96, allow_unicode=True)
        with entry.path.open("x", encoding="utf-8") as file:
            file.write(head + (text if entry.content else ""))
        read_environment_file(entry.path)
    return found


def _load(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InvalidEnvironmentError(f"{path}{line}: not YAML: {problem}") from error
    if not isinstance(content, (dict, type(None))):
        raise InvalidEnvironmentError(f"{path}: holds no `key: value` lines")
    return content or {}


def _cluster_base(folder: Path) -> dict[str, Any]:
    for place in (folder, folder.resolve().parent):
        path = place / "cluster_kwargs.yaml"
        if path.is_file():
            return _load(path)
    return {}


def _read(name: str, files: Mapping[str, Path], base: dict[str, Any], target: Path) -> Imported:
    found = Imported(name, target / f"{name}.yaml", [path.name for path in files.values()])
    found.content["description"] = f"{name} of coiled/benchmarks"
    if "conda" in files or "requirements" in files:
        _read_packages(found, files)
    if "dask" in files and (settings := _load(files["dask"])):
        found.content["dask"] = settings
    _read_cluster(found, files.get("cluster"), base)
    return found


def _read_packages(found: Imported, files: Mapping[str, Path]) -> None:
    lines: dict[str, str] = {}

    def add(line: str, path: Path) -> None:
        # What pip installs afterwards takes the place of conda's package of that name.
        try:
            name = parse_requirement(line, path.parent).name or line
        except InvalidEnvironmentError as error:
            found.warnings.append(f"{path}: {error}: left out")
        else:
            lines[name] = line

    if "conda" in files:
        path = files["conda"]
        content = _load(path)
        for channel in content.get("channels") or ():
            if channel not in _HAVE:
                found.warnings.append(f"{path}: channel {channel!r} has no equivalent: left out")
        pip: list[str] = []
        for entry in content.get("dependencies") or ():
            if isinstance(entry, Mapping):
                pip += entry.get("pip") or ()
                continue
            translated = translate(str(entry))
            if translated.reason:
                found.warnings.append(f"{path}: {entry}: {translated.reason}")
            if translated.python:
                _take_python(found, translated.python, path)
            if translated.requirement:
                add(translated.requirement, path)
        for line in pip:
            _take_line(str(line), path, add, found)
    if "requirements" in files:
        for line in files["requirements"].read_text(encoding="utf-8").splitlines():
            _take_line(line, files["requirements"], add, found)
    if lines:
        found.content["packages"] = list(lines.values())
    else:
        found.content.pop("python", None)


def _take_python(found: Imported, version: str, path: Path) -> None:
    try:
        too_old = Version(version) < Version("3.10")
    except InvalidVersion:
        too_old = False
    if too_old:
        found.warnings.append(
            f"{path}: python {version}: benchkit measures on 3.10 and newer: left out, so that "
            "this interpreter's version is taken"
        )
    else:
        found.content["python"] = version


def _take_line(line: str, path: Path, add: Any, found: Imported) -> None:
    text = re.sub(r"(^|\s)#.*$", "", line).strip()
    other = re.fullmatch(r"(?:-r|--requirement)[\s=]+(.+)", text)
    if other:
        included = path.parent / other[1]
        if included.is_file():
            for inner in included.read_text(encoding="utf-8").splitlines():
                _take_line(inner, included, add, found)
        else:
            found.warnings.append(f"{path}: {text}: no such file: left out")
    elif text:
        add(text, path)


def _read_cluster(found: Imported, path: Path | None, base: dict[str, Any]) -> None:
    own = _load(path) if path else {}
    sections = {**base, **own}
    if not sections:
        found.warnings.append(
            f"{found.path}: the reference names no cluster: a LocalCluster is used; "
            "`extends: coiled-small` gives one like its own"
        )
        return
    shapes = {
        name: _options({**(base.get(name) or {}), **(own.get(name) or {})}) for name in sections
    }
    if any("package_sync" in (part.get(name) or {}) for part in (base, own) for name in part):
        found.warnings.append(f"{path or 'cluster_kwargs.yaml'}: package_sync: on by default now")
    cluster: dict[str, Any] = {"class": _CLUSTER}
    for name in _MAIN:
        cluster |= shapes.pop(name, {})
    found.content["cluster"] = cluster
    if shapes:
        found.content["clusters"] = {
            name.removesuffix("_cluster"): shape for name, shape in shapes.items()
        }


def _options(section: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name != "package_sync"}
