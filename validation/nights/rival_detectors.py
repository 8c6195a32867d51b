"""The change-point detectors of asv and Apache Otava, called for each night like benchkit's.

Optional: ``pip install asv apache-otava``. Each night a detector returns all change points of the
nights so far; a place that it returns for the first time is an alarm of that night.
"""

from collections.abc import Callable, Iterable

import numpy as np

#: The first night on which a detector is called; all earlier nights are history.
FIRST = 30


def available() -> dict[str, Callable]:
    """Return the installed detectors by name."""
    found = {}
    try:
        from asv import step_detect
    except ImportError:
        pass
    else:
        found["asv step_detect, 5 %"] = lambda values: _nightly(values, _asv(step_detect))
    try:
        from otava.analysis import compute_change_points
    except ImportError:
        pass
    else:
        found["Otava, defaults"] = lambda values: _nightly(values, _otava(compute_change_points))
    return found


def _asv(module) -> Callable:
    def ask(values: list[float]) -> Iterable[tuple[int, int]]:
        _, _, regressions = module.detect_regressions(module.detect_steps(values), threshold=0.05)
        return [(after, 1) for _, after, *_ in regressions or ()]

    return ask


def _otava(compute: Callable) -> Callable:
    def ask(values: list[float]) -> Iterable[tuple[int, int]]:
        points, _ = compute(values)
        return [
            (point.index, 1 if point.stats.mean_2 > point.stats.mean_1 else -1) for point in points
        ]

    return ask


def _nightly(values: np.ndarray, ask: Callable) -> list[list[tuple[int, int, int]]]:
    alarms = []
    for row in values:
        seen: list[tuple[int, int, int]] = []
        for night in range(FIRST - 1, row.size):
            for index, direction in ask(row[: night + 1].tolist()):
                if all(abs(index - place) > 7 or direction != sign for place, _, sign in seen):
                    seen.append((int(index), night, direction))
        alarms.append(seen)
    return alarms
