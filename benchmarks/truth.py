"""Compare runs with truth from outside: ``python benchmarks/truth.py [SCENARIO...] [--release R]``.

Prints a row per quantity: scenario, capture level, metric, truth, what the run says, and the error.
`--release 2023.4.1` measures in an environment with that release of distributed, which uv builds.
The truths are those of `tests/helpers/truth`. Exit code 1: a value is off by more than 3 % (10 %
if the run says that it is estimated), absent without a reason, or a scenario failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from helpers.truth import SCENARIOS  # noqa: E402

from benchkit.store.build.run_from_recording import run_from_recording  # noqa: E402
from benchkit.store.run import Run  # noqa: E402

#: Largest relative error of a value that the run itself calls estimated; else 3 %.
BOUNDED = 0.1
#: Largest value where the truth is 0: other threads than the test's wait for the GIL a little.
ALMOST_ZERO = {"gil_contention_mean": 0.02}
#: Quantities without a metric of their own -> the metric whose note says so.
METRIC_OF = {"actor_time": "compute_time"}


def python_of(release: str, folder: Path) -> str:
    """Return the interpreter of a new environment with a release; "current": this one."""
    if release == "current":
        return sys.executable
    python = folder / "env" / "bin" / "python"
    packages = [f"dask=={release}", f"distributed=={release}", "numpy<2", "gilknocker"]
    for command in (
        ["venv", "-q", "--python", sys.executable, str(folder / "env")],
        ["pip", "install", "-q", "--python", str(python), *packages],
    ):
        subprocess.run([sys.executable, "-m", "uv", *command], check=True)
    return str(python)


def results(python: str, folder: Path, level: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what `helpers.truth` prints for each scenario, measured by another interpreter."""
    package = folder / "path" / "benchkit"
    if not package.exists():
        package.mkdir(parents=True)
        (package / "__init__.py").touch()  # else an installed benchkit comes first
        (package / "measure").symlink_to(HERE.parent / "benchkit" / "measure")
        (folder / "path" / "helpers").symlink_to(HERE.parent / "tests" / "helpers")
    for name in names:
        done = subprocess.run(
            [python, "-m", "helpers.truth", str(folder), level, name],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder / "path")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        lines = done.stdout.splitlines()
        if not lines:
            print(f"{name} ({level}): {done.stderr.strip().splitlines()[-1]}", flush=True)
            continue
        yield json.loads(lines[-1])  # also if gilknocker's thread ended the process with an error


def rows(result: dict[str, Any]) -> Iterator[tuple[str, float, float | None, str]]:
    """Yield metric, truth, value of the run (None if absent) and the error as text."""
    run = Run(run_from_recording(result["path"]))
    for name, truth in result["truths"].items():
        value = run.metrics.get(name)
        if value is None:
            yield name, truth, None, "absent"
        elif truth == 0:
            yield name, truth, value, "exact" if value == 0 else f"{value:+.3g}"
        else:
            yield name, truth, value, f"{100 * (value / truth - 1):+.1f} %"


def is_right(result: dict[str, Any], metric: str, truth: float, value: float | None) -> bool:
    """Return whether a value is near the truth, or absent with a reason."""
    notes = Run(run_from_recording(result["path"])).quality()
    name = METRIC_OF.get(metric, metric)
    kinds = {row.kind for row in notes.itertuples() if name in row.metrics.split(", ")}
    if value is None:
        return bool(kinds)
    limit = BOUNDED if "estimated" in kinds else 0.03
    return abs(value - truth) <= max(limit * abs(truth), ALMOST_ZERO.get(metric, 0.0))


def quality(result: dict[str, Any]) -> list[str]:
    """Return what the run itself says about its limits."""
    frame = Run(run_from_recording(result["path"])).quality()
    return [f"{row.kind}: {row.text}" for row in frame.itertuples()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=[], help=", ".join(SCENARIOS))
    parser.add_argument("--release", default="current", help="of Dask and distributed")
    parser.add_argument("--level", choices=["full", "light"], action="append")
    parser.add_argument("--notes", action="store_true", help="print each run's notes on quality")
    options = parser.parse_args()
    names, n_wrong = options.scenarios or list(SCENARIOS), 0
    print(f"{'scenario':<30} {'level':<6} {'metric':<20} {'truth':>12} {'benchkit':>12}  error")
    with tempfile.TemporaryDirectory() as temporary:
        python = python_of(options.release, Path(temporary))
        for level in options.level or ["full", "light"]:
            missing = set(names)
            for result in results(python, Path(temporary), level, names):
                missing.discard(result["scenario"])
                for metric, truth, value, error in rows(result):
                    shown = "-" if value is None else f"{value:.6g}"
                    line = f"{result['scenario']:<30} {level:<6} {metric:<20} {truth:>12.6g}"
                    mark = "" if is_right(result, metric, truth, value) else "  WRONG"
                    n_wrong += bool(mark)
                    print(f"{line} {shown:>12}  {error}{mark}", flush=True)
                if options.notes:
                    for line in quality(result):
                        print(f"    {line}")
            n_wrong += len(missing)
    print(f"{n_wrong} wrong" if n_wrong else "all right")
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
