"""Fit the constants of a model from kept runs of a cluster, and keep them in a file.

Bandwidth and latency come from the recorded transfers. `scale`, the cost of event loops, is the one
with the smallest mean error of the replays: the last step, because it depends on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import minimize_scalar

from benchkit.errors import UsageError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import as_environment
from benchkit.experiment.virtual.api import Simulator
from benchkit.experiment.virtual.graph_of_run import graph_of_run, shape_of_run
from benchkit.experiment.virtual.process import VirtualSpec
from benchkit.simulation.model import Model
from benchkit.store.run import Run
from benchkit.whole_file import write_whole

SUFFIX = ".model.yaml"
#: Transfers from this size in B on show the bandwidth, below it the latency.
LARGE_B = 1_000_000
#: Limits of `scale`, its precision as a logarithm, and the largest number of replays of a run.
SCALES = (0.1, 10.0)
PRECISION = 0.04
STEPS = 12


@dataclass(frozen=True)
class FittedModel:
    """Constants and how well they replay the runs."""

    model: Model  # The constants
    errors: dict[str, float]  # Id of a run -> relative error of its replay

    @property
    def error(self) -> float:
        """Median of the absolute errors of the replays."""
        return float(np.median(np.abs(list(self.errors.values()))))

    def rows(self) -> list[dict[str, Any]]:
        """Return a table of the fitted constants and of the errors."""
        fitted = [
            {"name": entry.name, "value": f"{getattr(self.model, entry.name):.4g}"}
            | {"unit": entry.metadata["unit"]}
            for entry in fields(self.model)
            if entry.metadata["fitted"]
        ]
        replays = [
            {"name": f"replay of {run[:13]}", "value": f"{error:+.1%}", "unit": ""}
            for run, error in self.errors.items()
        ]
        total = {"name": "median error", "value": f"{self.error:.1%}", "unit": ""}
        return [*fitted, *replays, total]


def fit_model(
    runs: Sequence[Run],
    environment: str | Environment = CURRENT,
    *,
    environment_folders: Sequence[str | Path] = (),
) -> FittedModel:
    """Fit bandwidth, latency and the cost of event loops."""
    inputs = [(graph_of_run(run), shape_of_run(run)) for run in runs]
    environment = as_environment(environment, environment_folders)
    built = build(environment)
    simulators = [Simulator(graph, built, environment, None) for graph, _ in inputs]

    def replay_errors(model: Model) -> list[float]:
        errors = []
        for simulator, (_, shape), run in zip(simulators, inputs, runs, strict=True):
            (replay,) = simulator.run([(VirtualSpec(shape, model), 0)], keep=False)
            errors.append(replay.duration / run.duration - 1.0)
        return errors

    model = _fit_network(runs)

    def mean_error(log_scale: float) -> float:
        errors = replay_errors(replace(model, scale=float(np.exp(log_scale))))
        return float(np.mean(np.abs(np.log1p(errors))))

    best = minimize_scalar(
        mean_error,
        bounds=np.log(SCALES),
        method="bounded",
        options={"xatol": PRECISION, "maxiter": STEPS},
    )
    model = replace(model, scale=float(np.exp(best.x)))
    errors = replay_errors(model)
    return FittedModel(model, dict(zip([run.id for run in runs], errors, strict=True)))


def _fit_network(runs: Sequence[Run]) -> Model:
    """Return the model with the bandwidth and latency of the recorded transfers."""
    transfers = [run.transfers() for run in runs]
    counts, nbytes, seconds = (
        np.concatenate([data[name].values for data in transfers])
        for name in ("count", "bytes", "seconds")
    )
    known = np.isfinite(nbytes) & (seconds > 0)
    size, duration = nbytes[known] / counts[known], seconds[known] / counts[known]
    large = size >= LARGE_B
    model = Model()
    constants = {}
    if large.any():
        # A transfer waits for others: the fastest tenth shows the link.
        constants["bandwidth"] = float(np.quantile(size[large] / duration[large], 0.9))
    if (~large).any():
        round_trip = float(np.quantile(duration[~large], 0.1)) - 2 * model.gather
        constants["latency"] = max(round_trip / 2, 1e-5)
    return replace(model, **constants)


def model_path(folder: Path, name: str) -> Path:
    """Return the file of a model."""
    if not name or Path(name).name != name:
        raise UsageError(f"--model {name!r}: must be a name without folders")
    return folder / f"{name}{SUFFIX}"


def read_model(folder: Path, name: str) -> Model:
    """Return the constants in a file."""
    path = model_path(folder, name)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Model.from_dict(content["constants"])
    except FileNotFoundError:
        raise UsageError(
            f"{path}: no such file: `benchkit simulate --fit RUN --model {name}` makes it"
        ) from None
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: {error}") from None


def write_model(fitted: FittedModel, folder: Path, name: str) -> Path:
    """Write constants to a file."""
    path = model_path(folder, name)
    content = {
        "constants": {
            entry.name: getattr(fitted.model, entry.name)
            for entry in fields(fitted.model)
            if entry.metadata["fitted"]
        },
        "replay_errors": {run: round(error, 4) for run, error in fitted.errors.items()},
    }
    write_whole(path, yaml.safe_dump(content, sort_keys=False))
    return path
