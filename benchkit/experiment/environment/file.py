"""Read one YAML environment file with the line of each key; check keys, types and formats.

Base files (`extends`) are read by `lookup`; settings are checked by `validate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import yaml
from packaging.specifiers import InvalidSpecifier
from packaging.version import Version

from benchkit.errors import InvalidEnvironmentError, UsageError, did_you_mean
from benchkit.experiment.environment.requirements import parse_requirement, python_specifier
from benchkit.measure.engines import ENGINES
from benchkit.measure.engines.preload import parse_preload

_KEYS = (
    "extends",
    "description",
    "python",
    "packages",
    "conda",
    "dask",
    "variables",
    "cluster",
    "clusters",
    "engine",
    "preload",
)
_MAPPINGS = ("dask", "variables", "cluster", "clusters")
#: Entries of a file; the largest shipped one has 60.
_MAX_ENTRIES = 10_000
_OLDEST_PYTHON = Version("3.10")
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class EnvironmentFile:
    """Content of an environment file."""

    path: Path  # The file
    content: dict[str, Any]  # Values by key; None (`packages:`) removes the value of a base file
    # The line of each key, by its path: `("dask", "distributed", "scheduler")`.
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    def where(self, *keys: str) -> str:
        """Return the place of a key, for messages."""
        for end in range(len(keys), 0, -1):
            if keys[:end] in self.lines:
                return f"{self.path}:{self.lines[keys[:end]]}"
        return str(self.path)


def read_environment_file(path: Path) -> EnvironmentFile:
    """Read and check one file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidEnvironmentError(f"{path}: cannot be read: {error}") from error
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return EnvironmentFile(path, {})
        if not isinstance(node, yaml.MappingNode):
            raise InvalidEnvironmentError(f"{path}:{_line(node)}: must contain `key: value` lines")
        lines = dict(islice(_lines(path, node, ()), _MAX_ENTRIES + 1))
        if len(lines) > _MAX_ENTRIES:  # aliases can multiply a short text
            raise InvalidEnvironmentError(f"{path}: has more than {_MAX_ENTRIES} entries")
        raw = _raw_texts(node)
        content = loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidEnvironmentError(f"{path}{describe_yaml_error(error)}") from error
    file = EnvironmentFile(path, content, lines)
    _check(file, raw)
    return file


def describe_yaml_error(error: Exception) -> str:
    """Return the place and the reason of an error of a YAML parser, in one line."""
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark else ""
    problem = getattr(error, "problem", None) or (str(error).splitlines() or ["damaged"])[0]
    return f"{line}: not YAML: {problem}"


def _lines(
    path: Path, node: yaml.Node, keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*keys, str(index)), _line(item)
            yield from _lines(path, item, (*keys, str(index)))
    if not isinstance(node, yaml.MappingNode):
        return
    key_lines: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InvalidEnvironmentError(f"{path}:{_line(key)}: a key must be text")
        if key.value in key_lines:
            # YAML silently uses the last value of a repeated key.
            raise InvalidEnvironmentError(
                f"{path}:{_line(key)}: {key.value!r} again, after line {key_lines[key.value]}: "
                "keep one of them"
            )
        key_lines[key.value] = _line(key)
        yield (*keys, key.value), _line(key)
        yield from _lines(path, value, (*keys, key.value))


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _raw_texts(node: yaml.MappingNode) -> dict[str, Any]:
    """Return `python` and `variables` as text: YAML reads 3.10 and 1e3 as numbers."""
    texts: dict[str, Any] = {}
    for key, value in node.value:
        if key.value == "python" and isinstance(value, yaml.ScalarNode):
            texts["python"] = value.value
        if key.value == "variables" and isinstance(value, yaml.MappingNode):
            texts["variables"] = {
                name.value: text.value
                for name, text in value.value
                if isinstance(text, yaml.ScalarNode) and text.tag != f"{_TAG}null"
            }
    return texts


def _check(file: EnvironmentFile, raw: dict[str, Any]) -> None:
    content = file.content
    for key in list(content):
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS, f"it takes {', '.join(_KEYS)}")
            _fail(file, f"unknown key {key!r}: {hint}", str(key))
    for key in ("extends", "description", "conda", "engine"):
        if not isinstance(content.get(key), (str, type(None))):
            _fail(file, f"{key} is {content[key]!r}: should be text", key)
    engine = content.get("engine")
    if engine is not None and engine not in ENGINES:
        hint = did_you_mean(engine, ENGINES, f"engines are {', '.join(ENGINES)}")
        _fail(file, f"engine {engine!r} does not exist: {hint}", "engine")
    if content.get("preload") is not None:
        _check_preload(file)
    for key in _MAPPINGS:
        if not isinstance(content.get(key), (dict, type(None))):
            _fail(file, f"{key} is {content[key]!r}: should be `name: value` lines", key)
    if content.get("python") is not None:
        _check_python(file, raw)
    if content.get("packages") is not None:
        _check_packages(file)
    if content.get("conda") is not None:
        if content.get("packages") is not None:
            _fail(file, "conda and packages: keep one of them", "conda")
        if not (file.path.parent / content["conda"]).is_file():
            _fail(file, f"conda: no file {content['conda']} next to this file", "conda")
    if content.get("dask") is not None:
        _check_text_keys(file, content["dask"], ("dask",))
    if content.get("variables") is not None:
        content["variables"] = _checked_variables(file, raw.get("variables", {}))
    if content.get("cluster") is not None:
        _check_cluster(file, content["cluster"], ("cluster",))
    for name, shape in (content.get("clusters") or {}).items():
        _check_shape(file, str(name), shape)


def _check_python(file: EnvironmentFile, raw: dict[str, Any]) -> None:
    text = raw.get("python")
    if text is None:
        _fail(file, 'python is a list or mapping: should be a version such as "3.11"')
    try:
        specifier = python_specifier(text)
    except InvalidSpecifier:
        _fail(file, f'python {text!r}: should be a version such as "3.11"', "python")
    file.content["python"] = text
    # benchkit.measure needs Python 3.10: reject an older exact version now.
    versions = [Version(s.version.removesuffix(".*")) for s in specifier if s.operator == "=="]
    for version in versions:
        if version.release[:2] < _OLDEST_PYTHON.release[:2]:
            _fail(file, f"python {text}: benchkit measures on {_OLDEST_PYTHON} and newer", "python")


def _check_packages(file: EnvironmentFile) -> None:
    packages = file.content["packages"]
    if not isinstance(packages, list) or not packages:
        _fail(file, "packages should be a list of pip requirement lines", "packages")
    for index, line in enumerate(packages):
        keys = ("packages", str(index))
        if not isinstance(line, str):
            _fail(file, f"{line!r} is not a pip requirement line: write it as text", *keys)
        try:
            parse_requirement(line, file.path.parent)
        except InvalidEnvironmentError as error:
            _fail(file, str(error), *keys)


def _check_preload(file: EnvironmentFile) -> None:
    lines = file.content["preload"]
    if not isinstance(lines, list):
        _fail(file, f"preload is {lines!r}: should be a list of modules", "preload")
    for index, line in enumerate(lines):
        try:
            parse_preload(str(line))
        except UsageError as error:
            _fail(file, str(error), "preload", str(index))


def _check_text_keys(
    file: EnvironmentFile, value: Mapping[Any, Any], keys: tuple[str, ...]
) -> None:
    for key, inner in value.items():
        if not isinstance(key, str):
            _fail(file, f"{'.'.join(keys)}: key {key!r} is not text: quote it", *keys, str(key))
        if isinstance(inner, dict):
            _check_text_keys(file, inner, (*keys, key))


def _checked_variables(file: EnvironmentFile, texts: dict[str, str]) -> dict[str, str]:
    for name in file.content["variables"]:
        keys = ("variables", str(name))
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            _fail(file, f"variable {name!r}: a name has letters, digits and _ only", *keys)
        if str(name) not in texts:
            _fail(file, f"variable {name} should be text: write '' for an empty one", *keys)
        if str(name).startswith("DASK_"):
            _fail(
                file, f"variable {name}: put Dask's settings below `dask:`, with their types", *keys
            )
    return texts


def _check_cluster(
    file: EnvironmentFile, options: Mapping[Any, Any], keys: tuple[str, ...]
) -> None:
    for name in ("class", "address"):
        if name in options and not isinstance(options[name], str):
            _fail(
                file, f"{'.'.join(keys)}.{name} is {options[name]!r}: should be text",
                *keys, name,
            )  # fmt: skip
    _check_text_keys(file, options, keys)


def _check_shape(file: EnvironmentFile, name: str, shape: Any) -> None:
    if not isinstance(shape, dict):
        _fail(file, f"clusters.{name} is {shape!r}: should be options", "clusters", name)
    for key in ("class", "address"):
        if key in shape:
            _fail(
                file, f"clusters.{name}: {key} belongs to `cluster`; a shape has options only",
                "clusters", name, key,
            )  # fmt: skip
    _check_text_keys(file, shape, ("clusters", name))


def _fail(file: EnvironmentFile, message: str, *keys: str) -> NoReturn:
    raise InvalidEnvironmentError(f"{file.where(*keys)}: {message}")
