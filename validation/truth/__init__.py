"""Known truths about a run: scenarios that know from outside what a capture must report.

Each scenario runs a body on a real cluster while the clock is on, and returns what happened: known
sleeps, bytes and kills, clocks around the body, and memory, CPU and disk counters that the kernel
keeps for the processes, read by another process. `benchmarks/truth.py` prints the table,
`tests/measure/test_truth.py` asserts part of it.

Needs Dask, NumPy and `benchkit.measure` only, so that it also runs in an environment with an old
release: ``python -m validation.truth FOLDER LEVEL SCENARIO,...`` prints one JSON line per scenario.
"""

from validation.truth import counts, hosts, memory, seconds  # noqa: F401 (they register scenarios)
from validation.truth.measure import measure
from validation.truth.scenario import SCENARIOS, Scenario

__all__ = ["SCENARIOS", "Scenario", "measure"]
