"""Keep account of the clusters that opened; one that never did is a mistake, and no run.

A wrong address, key, certificate, partition or login shows when the first cluster of an arm does
not open. Later failures, and those of local clusters, are runs with the outcome `infrastructure`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchkit.errors import ClusterError, InvalidClusterError
from benchkit.experiment.run.kernel import KernelError
from benchkit.experiment.run.plan import Arm
from benchkit.measure.cluster.spec import ClusterSpec

#: Measurements in turn whose cluster did not open, after which no more are tried.
MAX_FAILURES = 2


class ClusterStarts:
    """Clusters of one experiment: per arm, and per cluster options of a workload."""

    def __init__(self) -> None:
        self._opened: set[tuple[str, str]] = set()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._errors: list[ClusterError | InvalidClusterError] = []

    def is_hopeless(self, arm: str, options: Any) -> bool:
        """Return whether a cluster never opened, and was tried often enough."""
        return self._failures[arm, repr(options)] >= MAX_FAILURES

    @contextmanager
    def errors_at_end(self, at_end: bool) -> Iterator[None]:
        """Keep an error of a cluster that the body raises, for `raise_first`."""
        try:
            yield
        except (ClusterError, InvalidClusterError) as error:
            if not at_end:
                raise
            self._errors.append(error)

    def raise_first(self) -> None:
        """Raise the first error that was kept, if there is one."""
        if self._errors:
            raise self._errors[0]

    def error(
        self, arm: Arm, options: Any, attributes: Mapping[Any, Any], error: KernelError | None
    ) -> ClusterError | InvalidClusterError | None:
        """Return an error if the cluster of a measurement did not open, and never did before."""
        key = arm.name, repr(options)
        is_invalid = error is not None and str(error).startswith(InvalidClusterError.__name__)
        phase = attributes.get("phase", "")
        failed = phase == "open" and attributes["outcome"] == "infrastructure"
        if not is_invalid and not failed:
            if phase not in ("open", "kernel"):
                self._opened.add(key)
            return None
        is_local = ClusterSpec.from_dict(arm.environment.cluster).is_local
        if key in self._opened or (is_local and not is_invalid):
            return None
        self._failures[key] += 1
        kind = InvalidClusterError if is_invalid else ClusterError
        text = attributes["error"].removeprefix(f"{kind.__name__}: ")
        return kind(f"environment {arm.environment.name!r}: {text}")
