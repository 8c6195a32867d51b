"""Create arms from a grid: every combination of values of settings or workload parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml
from packaging.utils import canonicalize_name

from benchkit.errors import UsageError, did_you_mean
from benchkit.experiment.environment.builds import Candidate, CandidateEnvironments, pins_of
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.run.plan import Arm
from benchkit.measure.engines import ENGINES
from benchkit.values import split_at_commas

#: Parts of an environment that a sweep may set, and parameters of workloads.
_PARTS = ("cluster", "dask", "engine", "packages", "param", "variables")
#: Parts whose points are all arms, the first the baseline.
ARM_PARTS = ("packages", "param")


def parse_sweeps(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return sweeps as values by key.

    Examples
    --------
    >>> parse_sweeps(["cluster.n_workers=2,4"])
    {'cluster.n_workers': [2, 4]}
    """
    sweeps: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        part, dot, rest = key.strip().partition(".")
        if part not in _PARTS:
            hint = did_you_mean(part, _PARTS, f"use {', '.join(_PARTS)}")
            raise UsageError(f"--sweep {text!r}: cannot set {part!r}: {hint}")
        pieces = split_at_commas(values)
        if part == "engine":
            wrong = [piece for piece in pieces if piece not in ENGINES]
            if dot or not equals or wrong:
                raise UsageError(f"--sweep {text!r}: must be engine={','.join(ENGINES)} or some")
        elif not rest or not equals or not all(pieces):
            raise UsageError(f"--sweep {text!r}: must be PART.NAME=VALUE,VALUE,...")
        if key.strip() in sweeps:
            raise UsageError(f"--sweep {text!r}: {key.strip()} is given twice")
        sweeps[key.strip()] = [_value(piece, part) for piece in pieces]
    return sweeps


def _value(text: str, part: str) -> Any:
    if part in ("packages", "variables"):  # 2024.10 is no number
        return text
    if text == "inf":  # as in Dask's own configuration; YAML writes `.inf`
        return float("inf")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"--sweep: value {text!r} is not YAML") from error


def expand(
    baseline: Environment, sweeps: Mapping[str, Sequence[Any]], requires: Sequence[str] = ()
) -> list[Arm]:
    """Return an arm for each combination of values; `requires` are packages of the workloads."""
    grid = [
        dict(zip(sweeps, values, strict=True)) for values in itertools.product(*sweeps.values())
    ]
    builds = _builds(baseline, grid, requires)
    arms = []
    for number, point in enumerate(grid):
        environment = builds.environment(number) if builds else baseline
        parts: dict[str, Any] = {}
        for key, value in point.items():
            part, _, rest = key.partition(".")
            if part in ARM_PARTS:
                continue
            if part == "engine":
                parts[part] = value
                continue
            keys = rest.split(".") if part == "dask" else [rest]
            parts[part] = _with_value(parts.get(part, getattr(baseline, part)), keys, value)
        name = _name(point)
        changed = {"name": name, "description": f"{baseline.name} with {name}", **parts}
        is_changed = bool(parts or builds)
        arms.append(Arm(name, replace(environment, **changed) if is_changed else baseline, point))
    return arms


def _name(point: Mapping[str, Any]) -> str:
    """Return the name of the arm of a point."""
    parts = [key.removeprefix("packages.") for key in point]
    names = [part if f"packages.{part}" in point else part.rpartition(".")[2] for part in parts]
    return ",".join(f"{name}={value}" for name, value in zip(names, point.values(), strict=True))


def _builds(
    baseline: Environment, grid: Sequence[Mapping[str, Any]], requires: Sequence[str]
) -> CandidateEnvironments | None:
    """Return the builds of the points; None if the sweep sets no package."""
    candidates = []
    for point in grid:
        versions = {
            canonicalize_name(key.removeprefix("packages.")): str(value)
            for key, value in point.items()
            if key.startswith("packages.")
        }
        pins = {name: pin for package, version in versions.items()
                for name, pin in pins_of(package, version).items()}  # fmt: skip
        # Dask and distributed are released together, but one of them may be set alone.
        pins |= {name: f"=={version}" for name, version in versions.items()}
        candidates.append(Candidate(_name(point), f"--sweep {_name(point)}", pins))
    if not candidates or not candidates[0].pins:
        return None
    return CandidateEnvironments(baseline, candidates, requires)


def _with_value(tree: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of nested mappings in which one value is replaced."""
    if len(keys) == 1:
        return {**tree, keys[0]: value}
    inner = tree.get(keys[0])
    inner = inner if isinstance(inner, Mapping) else {}
    return {**tree, keys[0]: _with_value(inner, keys[1:], value)}
