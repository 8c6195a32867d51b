"""Create arms from a grid: every combination of values of settings or workload parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from benchkit.errors import UsageError, did_you_mean
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.run.plan import Arm
from benchkit.values import split_at_commas

#: Parts of an environment that a sweep may set, and parameters of workloads.
_PARTS = ("cluster", "dask", "param", "variables")


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
        if not dot or not rest or not equals or not all(pieces):
            raise UsageError(f"--sweep {text!r}: must be PART.NAME=VALUE,VALUE,...")
        if key.strip() in sweeps:
            raise UsageError(f"--sweep {text!r}: {key.strip()} is given twice")
        sweeps[key.strip()] = [_value(piece, part) for piece in pieces]
    return sweeps


def _value(text: str, part: str) -> Any:
    if part == "variables":
        return text
    if text == "inf":  # as in Dask's own configuration; YAML writes `.inf`
        return float("inf")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"--sweep: value {text!r} is not YAML") from error


def expand(baseline: Environment, sweeps: Mapping[str, Sequence[Any]]) -> list[Arm]:
    """Return an arm for each combination of values."""
    arms = []
    for values in itertools.product(*sweeps.values()):
        point = dict(zip(sweeps, values, strict=True))
        parts: dict[str, Any] = {}
        for key, value in point.items():
            part, _, rest = key.partition(".")
            if part == "param":
                continue
            keys = rest.split(".") if part == "dask" else [rest]
            parts[part] = _with_value(parts.get(part, getattr(baseline, part)), keys, value)
        name = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in point.items())
        changed = {"name": name, "description": f"{baseline.name} with {name}", **parts}
        arms.append(Arm(name, replace(baseline, **changed) if parts else baseline, point))
    return arms


def _with_value(tree: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of nested mappings in which one value is replaced."""
    if len(keys) == 1:
        return {**tree, keys[0]: value}
    inner = tree.get(keys[0])
    inner = inner if isinstance(inner, Mapping) else {}
    return {**tree, keys[0]: _with_value(inner, keys[1:], value)}
