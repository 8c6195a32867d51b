"""Read the A/B environments of coiled/benchmarks: `AB_<name>.conda|dask|cluster.yaml`.

Each name becomes one environment file. Entries without an equivalent are reported as warnings.
No file is overwritten, and all files are read before the first is written.

`config.yaml`, which says what to measure, becomes the command that `benchkit env import` proposes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from benchkit.errors import InvalidEnvironmentError, UsageError
from benchkit.experiment.environment.file import describe_yaml_error, read_environment_file
from benchkit.experiment.environment.requirements import parse_requirement
from benchkit.whole_file import write_whole

_FILE = re.compile(
    r"AB_(?P<name>.+)\.(?P<kind>conda\.yaml|dask\.yaml|cluster\.yaml|requirements\.in)"
)
#: Sections of the default cluster.
_DEFAULT_SECTIONS = ("default", "small_cluster")
#: Channels whose packages are on the package index too.
_KNOWN_CHANNELS = {"conda-forge", "defaults", "nodefaults"}
_CLUSTER_CLASS = "coiled.Cluster"


@dataclass
class ImportedEnvironment:
    """An imported environment."""

    name: str  # Name of the environment
    path: Path  # File to write
    sources: list[str] = field(default_factory=list)  # Names of the imported files
    # Entries without an equivalent, one line each.
    warnings: list[str] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)  # Content of the environment file

    def to_dict(self) -> dict[str, Any]:
        """Return a flat row."""
        return {
            "name": self.name,
            "path": str(self.path),
            "sources": self.sources,
            "warnings": self.warnings,
        }


def import_reference(folder: Path, target: Path) -> list[ImportedEnvironment]:
    """Write an environment file for each name in a folder of coiled/benchmarks."""
    groups: dict[str, dict[str, Path]] = {}
    unknown_files = []
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match:
            groups.setdefault(match["name"], {})[match["kind"].partition(".")[0]] = path
        elif path.name.startswith("AB_"):
            unknown_files.append(path.name)
    if not groups:
        raise UsageError(f"{folder}: no files AB_<name>.conda.yaml, .dask.yaml or .cluster.yaml")
    base = _cluster_base(folder)
    imported = [_read(name, files, base, target) for name, files in groups.items()]
    imported[0].warnings[:0] = [
        f"{folder / name}: none of conda, dask, cluster: skipped" for name in unknown_files
    ]
    imported[-1].warnings += _config_warnings(folder)
    existing = [str(entry.path) for entry in imported if entry.path.exists()]
    if existing:
        raise UsageError(
            f"{', '.join(existing)}: already exists; nothing was imported: "
            "choose another folder with --environments"
        )
    for entry in imported:
        head = f"# Imported from {', '.join(entry.sources)} of coiled/benchmarks.\n"
        text = yaml.safe_dump(entry.content, sort_keys=False, width=96, allow_unicode=True)
        write_whole(entry.path, head + (text if entry.content else ""))
        read_environment_file(entry.path)
    return imported


def _load_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidEnvironmentError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidEnvironmentError(f"{path}{describe_yaml_error(error)}") from error
    if not isinstance(content, (dict, type(None))):
        raise InvalidEnvironmentError(f"{path}: must contain `key: value` lines")
    return content or {}


def _cluster_base(folder: Path) -> dict[str, Any]:
    for parent in (folder, folder.resolve().parent):
        path = parent / "cluster_kwargs.yaml"
        if path.is_file():
            return _load_sections(path)
    return {}


def _load_sections(path: Path) -> dict[str, Any]:
    """Return the content of a file of clusters: options by the name of a section."""
    content = _load_yaml(path)
    for name, section in content.items():
        if not isinstance(section, (dict, type(None))):
            raise InvalidEnvironmentError(
                f"{path}: {name}: must be a section with options, as in default: {{{name}: ...}}"
            )
    return content


def _entries(content: Mapping[str, Any], name: str, path: Path) -> list[Any]:
    """Return a list in a file of conda; empty if it is absent."""
    entries = content.get(name) or []
    if not isinstance(entries, list):
        raise InvalidEnvironmentError(f"{path}: {name}: must be a list")
    return entries


def _read(
    name: str, files: Mapping[str, Path], base: dict[str, Any], target: Path
) -> ImportedEnvironment:
    imported = ImportedEnvironment(
        name, target / f"{name}.yaml", [path.name for path in files.values()]
    )
    imported.content["description"] = f"{name} of coiled/benchmarks"
    if "conda" in files or "requirements" in files:
        _read_packages(imported, files)
    if "dask" in files and (settings := _load_yaml(files["dask"])):
        unread = settings.pop("dask", None)
        if unread is not None:
            imported.warnings.append(
                f"{files['dask']}: 'dask' is left out: Dask reads no setting below this name"
            )
        imported.content["dask"] = settings
    _read_cluster(imported, files.get("cluster"), base)
    return imported


def _read_packages(imported: ImportedEnvironment, files: Mapping[str, Path]) -> None:
    lines: dict[str, str] = {}

    def add(line: str, path: Path) -> None:
        # pip runs after conda and replaces its package of the same name.
        try:
            name = parse_requirement(line, path.parent).name or line
        except InvalidEnvironmentError as error:
            imported.warnings.append(f"{path}: {error}: skipped")
        else:
            lines[name] = line

    if "conda" in files:
        path = files["conda"]
        content = _load_yaml(path)
        for channel in _entries(content, "channels", path):
            if channel not in _KNOWN_CHANNELS:
                imported.warnings.append(f"{path}: channel {channel!r} has no equivalent: skipped")
        pip: list[str] = []
        for entry in _entries(content, "dependencies", path):
            if isinstance(entry, Mapping):
                pip += _entries(entry, "pip", path)
                continue
            translated = translate_conda_spec(str(entry))
            if translated.reason:
                imported.warnings.append(f"{path}: {entry}: {translated.reason}")
            if translated.python:
                _add_python(imported, translated.python, path)
            if translated.requirement:
                add(translated.requirement, path)
        for line in pip:
            _add_line(str(line), path, add, imported)
    if "requirements" in files:
        for line in files["requirements"].read_text(encoding="utf-8").splitlines():
            _add_line(line, files["requirements"], add, imported)
    if lines:
        imported.content["packages"] = list(lines.values())
    else:
        imported.content.pop("python", None)


def _add_python(imported: ImportedEnvironment, version: str, path: Path) -> None:
    try:
        too_old = Version(version) < Version("3.10")
    except InvalidVersion:
        too_old = False
    if too_old:
        imported.warnings.append(
            f"{path}: python {version}: benchkit measures on 3.10 and newer: skipped, the version "
            "of this interpreter is used"
        )
    else:
        imported.content["python"] = version


def _add_line(line: str, path: Path, add: Any, imported: ImportedEnvironment) -> None:
    text = re.sub(r"(^|\s)#.*$", "", line).strip()
    include = re.fullmatch(r"(?:-r|--requirement)[\s=]+(.+)", text)
    if include:
        included = path.parent / include[1]
        if included.is_file():
            for inner in included.read_text(encoding="utf-8").splitlines():
                _add_line(inner, included, add, imported)
        else:
            imported.warnings.append(f"{path}: {text}: no such file: skipped")
    elif text:
        add(text, path)


def _read_cluster(imported: ImportedEnvironment, path: Path | None, base: dict[str, Any]) -> None:
    own = _load_sections(path) if path else {}
    sections = {**base, **own}
    if not sections:
        imported.warnings.append(
            f"{imported.path}: no cluster is defined: a LocalCluster is used; "
            "add `extends: coiled-small` for a similar Coiled cluster"
        )
        return
    shapes = {
        name: _options({**(base.get(name) or {}), **(own.get(name) or {})}) for name in sections
    }
    if any("package_sync" in (part.get(name) or {}) for part in (base, own) for name in part):
        imported.warnings.append(
            f"{path or 'cluster_kwargs.yaml'}: package_sync: on by default, skipped"
        )
    cluster: dict[str, Any] = {"class": _CLUSTER_CLASS}
    for name in _DEFAULT_SECTIONS:
        cluster |= shapes.pop(name, {})
    imported.content["cluster"] = cluster
    if shapes:
        imported.content["clusters"] = {
            name.removesuffix("_cluster"): shape for name, shape in shapes.items()
        }


def _options(section: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name != "package_sync"}


#: Entry of config.yaml -> what takes its place.
_NOT_IMPORTED = {
    "targets": "tests are not imported: select workloads with -k",
    "markers": "markers of tests are not imported: select workloads with -k tag:...",
    "h2o_datasets": "select workloads with -k, such as 'h2o'; --scale changes their sizes",
    "max_parallel": "benchkit measures one run after the other",
}


def ab_command(folder: Path, names: Sequence[str], target: Path) -> str:
    """Return the command that measures what the `config.yaml` of a folder requests."""
    config = _load_config(folder)
    arms = sorted(names, key=lambda name: name != "baseline")
    words = ["benchkit", "ab", *arms, "--environments", str(target), "-k", "profile:quick"]
    if isinstance(repeat := config.get("repeat"), int) and repeat > 0:
        words += ["-n", str(repeat)]
    if config.get("test_null_hypothesis") is False:
        words += ["--no-null"]
    return shlex.join(words)


def _load_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.yaml"
    return _load_yaml(path) if path.is_file() else {}


def _config_warnings(folder: Path) -> list[str]:
    """Return a line for each entry of `config.yaml` that `ab_command` does not use."""
    return [
        f"{folder / 'config.yaml'}: {name}: {_NOT_IMPORTED.get(name, 'has no equivalent')}"
        for name, value in _load_config(folder).items()
        if value and name not in ("repeat", "test_null_hypothesis")
    ]


#: Names on the package index, and conda packages that are no Python packages.
_PACKAGES = yaml.safe_load(
    Path(__file__).with_name("conda_packages.yaml").read_text(encoding="utf-8")
)
#: Libraries and virtual packages, such as libnetcdf, _libgcc_mutex, xorg-libxau and abseil-cpp.
_LIBRARY = re.compile(r"_.+|lib.+|(xorg|aws-c|fonts?)-.+|.+-cpp|.+_linux-\d+")


@dataclass(frozen=True)
class CondaRequirement:
    """Translation of an entry of a conda file; all fields are empty for ``pip``."""

    requirement: str = ""  # Pip requirement line
    python: str = ""  # Version of Python
    reason: str = ""  # Reason why pip cannot express the entry, or a part of it


def translate_conda_spec(spec: str) -> CondaRequirement:
    """Translate an entry of `dependencies` in a conda file to a pip requirement.

    Examples
    --------
    >>> translate_conda_spec("numpy =1.26").requirement
    'numpy==1.26.*'
    >>> translate_conda_spec("openssl >1.1.0g").reason
    'not a Python package: pip cannot install it'
    """
    text = spec.rpartition("::")[2].strip()
    match = re.fullmatch(r"([\w.-]+)\s*(.*)", text)
    if not match:
        return CondaRequirement(reason="not a conda package specification")
    name, version = match[1].lower(), match[2].strip()
    is_library = _LIBRARY.fullmatch(name) and name not in _PACKAGES["library_names"]
    if is_library or name in _PACKAGES["not_python"]:
        return CondaRequirement(
            reason="not a Python package: pip cannot install it" if name != "pip" else ""
        )
    allowed, build = _split_version(version)
    if name == "python":
        return CondaRequirement(python=allowed.removeprefix("==").removesuffix(".*"))
    if allowed:
        try:
            SpecifierSet(allowed)
        except InvalidSpecifier:
            return CondaRequirement(reason=f"pip cannot express version {version!r}")
    name = _PACKAGES["pypi_names"].get(name, name)
    reason = f"build {build!r} has no equivalent: any build is used" if build else ""
    return CondaRequirement(f"{name}{allowed}", reason=reason)


def _split_version(text: str) -> tuple[str, str]:
    """Return pip's specifier and conda's build string."""
    if not text:
        return "", ""
    # name=1.2=py39_0, or separated by spaces: name 1.2 py39_0
    parts = re.fullmatch(r"=?\s*([\w.*]+)(?:\s*=\s*|\s+)([\w.*]+)", text)
    if parts and not text.startswith("=="):
        return f"=={parts[1]}", parts[2]
    if "|" in text:
        return text, ""
    compact = re.sub(r"\s+", "", text)
    if re.match(r"=[^=]", compact):
        version = compact[1:].removesuffix("*").removesuffix(".")
        return f"=={version}.*", ""
    if re.match(r"[\d*]", compact):
        return ("", "") if compact == "*" else (f"=={compact}", "")
    return compact, ""
