"""Compare runs with truth from outside: ``python benchmarks/truth.py [--hosts] [SCENARIO...]``.

Prints a row per quantity: scenario, capture level, metric, truth, what the run says, and the error.
`--release 2023.4.1` measures in an environment with that release of distributed, which uv builds.
`--hosts` measures clusters of several hosts (`validation/hosts`) with clocks 4 s apart, whose
links count the bytes; without it, local clusters.
The truths are those of `validation/truth`. Exit code 1: a value is off by more than 3 % (10 %
if the run says that it is estimated), absent without a reason, or a scenario failed.
"""

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
sys.path[:0] = [str(HERE.parent)]

from validation.hosts import missing as missing_for_hosts  # noqa: E402
from validation.releases import release_python  # noqa: E402
from validation.truth import SCENARIOS  # noqa: E402
from validation.truth.hosts import measure_on_hosts  # noqa: E402

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
    return str(release_python(release, folder / "env"))


def measured_path(folder: Path) -> str:
    """Return a folder with what an interpreter needs for ``python -m validation.truth``."""
    package = folder / "path" / "benchkit"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()  # else an installed benchkit comes first
    (package / "measure").symlink_to(HERE.parent / "benchkit" / "measure")
    (folder / "path" / "validation").symlink_to(HERE.parent / "validation")
    return str(folder / "path")


def results(
    python: str, path: str, folder: Path, level: str, names: list[str], on: str
) -> Iterator[dict[str, Any]]:
    """Yield what `validation.truth` prints for each scenario, measured by another interpreter."""
    for name in names:
        if on == "hosts":
            done = measure_on_hosts(python, path, folder, level, name)
        else:
            done = subprocess.run(
                [python, "-m", "validation.truth", str(folder), level, name],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path},
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
    parser.add_argument("--hosts", action="store_true", help="on clusters of several hosts")
    parser.add_argument("--notes", action="store_true", help="print each run's notes on quality")
    options = parser.parse_args()
    on, n_wrong = "hosts" if options.hosts else "local", 0
    if on == "hosts" and (reason := missing_for_hosts()):
        parser.error(reason)
    names = options.scenarios or [name for name in SCENARIOS if on in SCENARIOS[name].on]
    if others := [name for name in names if on not in SCENARIOS[name].on]:
        parser.error(f"not on {on} clusters: {', '.join(others)}")
    print(f"{'scenario':<30} {'level':<6} {'metric':<20} {'truth':>12} {'benchkit':>12}  error")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        python, path = python_of(options.release, folder), measured_path(folder)
        for level in options.level or ["full", "light"]:
            missing = set(names)
            for result in results(python, path, folder, level, names, on):
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
