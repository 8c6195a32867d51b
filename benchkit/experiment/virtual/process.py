"""Simulate one run in a process of an environment, and return its recording."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchkit.captured_process import run_captured
from benchkit.errors import BenchkitError, UsageError
from benchkit.experiment.environment.cache import Built
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.process_variables import process_variables
from benchkit.private_folder import private_folder
from benchkit.simulation.model import ClusterShape, Model

#: Limit for one simulation in s.
TIMEOUT_S = 3600.0


class SimulationProcessError(BenchkitError):
    """Raised if the process of a simulation ends without a recording."""


#: What a value of ``--virtual`` must be, by name; others are numbers.
_VALUES = {
    "workers": "must be a whole number, such as workers=100",
    "threads": "must be a whole number, such as threads=2",
    "memory": "must be a size, such as memory=4GiB",
    "durations": "must be median or resample",
}


@dataclass(frozen=True)
class VirtualSpec:
    """A virtual cluster: its size and its constants."""

    shape: ClusterShape = field(default_factory=ClusterShape)  # Workers, threads and memory limit
    model: Model = field(default_factory=Model)  # Constants
    durations: str = "median"  # How durations of a workload's tasks are taken from kept runs
    # Dask configuration by full name, in addition to that of the environment.
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> VirtualSpec:
        """Return the cluster from its fields as dictionaries, as a plan stores them."""
        model = Model.from_dict(content["model"])
        return cls(ClusterShape(**content["shape"]), model, content["durations"])


def parse_shape(text: str) -> VirtualSpec:
    """Return the virtual cluster that the option ``--virtual`` describes."""
    shape: dict[str, Any] = {}
    constants: dict[str, float] = {}
    durations = "median"
    names: set[str] = set()
    for part in filter(None, text.split(",")):
        name, equals, value = (word.strip() for word in part.partition("="))
        wanted = "must be NAME=VALUE, such as workers=100"
        if name in names:
            raise UsageError(f"--virtual {text!r}: {name} is given twice")
        names.add(name)
        try:
            if not equals or not value:
                raise ValueError(wanted)
            wanted = _VALUES.get(name, "must be a number")
            if name in ("workers", "threads"):
                shape[name] = int(value)
            elif name == "memory":
                from dask.utils import parse_bytes

                shape["memory_limit"] = int(parse_bytes(value))
            elif name == "durations":
                if value not in ("median", "resample"):
                    raise ValueError(wanted)
                durations = value
            else:
                constants[name] = float(value)
        except ValueError:
            raise UsageError(f"--virtual {part!r}: {wanted}") from None
    try:
        return VirtualSpec(ClusterShape(**shape), Model.from_dict(constants), durations)
    except ValueError as error:
        raise UsageError(f"--virtual: {error}") from None


def simulate_in_environment(
    environment: Environment,
    built: Built,
    graph: Mapping[str, Any],
    virtual: VirtualSpec,
    *,
    folder: Path,
    facts: Mapping[str, Any],
    draw: int = 0,
) -> Path:
    """Simulate one run in a new process of an environment."""
    request = {
        "graph": dict(graph),
        "shape": asdict(virtual.shape),
        "model": virtual.model.to_dict(),
        "config": dict(virtual.config),
        "draw": draw,
        "folder": str(folder.resolve()),
        "id": facts["id"],
        "facts": {name: value for name, value in facts.items() if name != "id"},
    }
    folder.mkdir(parents=True, exist_ok=True)
    with private_folder() as private:
        variables = process_variables(environment, built, Path(private))
        # Keys have hashes of their own; this fixes what remains.
        variables["PYTHONHASHSEED"] = "0"
        path = Path(private, "request.json")
        path.write_text(json.dumps(request), encoding="utf-8")
        try:
            command = [str(built.python), "-m", "benchkit.simulation.entrypoint", str(path)]
            ended = run_captured(command, env=variables, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise SimulationProcessError(f"no end of the simulation in {TIMEOUT_S:g} s") from error
    recording = folder / f"{facts['id']}.recording"
    if ended.returncode or not (recording / "tail.json").exists():
        lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise SimulationProcessError(f"environment {environment.name}: {lines[-1]}")
    return recording
