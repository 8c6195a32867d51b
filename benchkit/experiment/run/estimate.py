"""How long a plan will take: from earlier runs, corrected as it goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean

from benchkit.experiment.run.experiment import Experiment
from benchkit.experiment.run.known_workloads import KnownWorkload, load_known
from benchkit.store.store import Store

__all__ = ["Estimate", "estimate_of", "known_durations"]

#: Around each workload: a fresh cluster, imports on its workers, the last drain, the check.
#: Measured on two cores; replaced by what this experiment shows after its first run.
OVERHEAD_S = 5.0
#: For a workload that nobody has run yet; those that are shipped aim at 2 to 15 s.
UNKNOWN_S = 8.0


def known_durations(
    store: Store, shipped: Mapping[str, KnownWorkload] | None = None
) -> dict[str, float]:
    """Return how long each variant takes, in s: the median of this store's, else as shipped."""
    known = {name: fact.duration for name, fact in (shipped or {}).items()}
    if len(store):
        runs = store.runs(columns=["workload", "duration"], outcome="ok")
        known |= runs.groupby("workload")["duration"].median().dropna().to_dict()
    return known


def estimate_of(experiment: Experiment) -> Estimate:
    """Return the estimate of what is left of an experiment."""
    planned = [measurement.variant for measurement in experiment.plan()]
    return Estimate(planned, known_durations(experiment.store, load_known(experiment)))


class Estimate:
    """Seconds that are left of a list of variants.

    Parameters
    ----------
    variants : iterable of str
        What will run; names repeat.
    known : mapping of str to float
        Durations of earlier runs, in s.
    """

    def __init__(self, variants: Iterable[str], known: Mapping[str, float]) -> None:
        self._ahead = Counter(variants)
        self._known = dict(known)
        self._overheads: list[float] = []
        self._seen: list[float] = []

    def finished(self, name: str, elapsed_s: float, duration_s: float | None) -> None:
        """Take one run of a variant off the list, and learn from how long it took."""
        self.dropped(name)
        if duration_s is not None:
            self._known[name] = duration_s
            self._overheads.append(max(elapsed_s - duration_s, 0.0))
            self._seen.append(duration_s)

    def dropped(self, name: str) -> None:
        """Take one run of a variant off the list, because it is not worth it any more."""
        self._ahead[name] -= 1

    def run_seconds(self, name: str) -> float:
        """Seconds that one run of a variant takes with all that is around it."""
        overhead = fmean(self._overheads) if self._overheads else OVERHEAD_S
        unknown = fmean(self._seen) if self._seen else UNKNOWN_S
        return self._known.get(name, unknown) + overhead

    @property
    def left_s(self) -> float:
        """Seconds until the end of the list."""
        return sum(n * self.run_seconds(name) for name, n in self._ahead.items() if n > 0)
