"""Run scenarios: ``python -m helpers.truth FOLDER LEVEL SCENARIO...``, a JSON line each."""

from __future__ import annotations

import json
import sys
import time

from helpers.truth import SCENARIOS, measure


def _wrap_clock() -> None:
    """Replace `time.time` before distributed imports it, so that a scenario can set the clock."""
    real = time.time

    def wrapped() -> float:
        return real() + wrapped.ahead

    wrapped.ahead = 0.0

    # Pickled by reference, so that another process takes its own clock.
    wrapped.__module__, wrapped.__name__, wrapped.__qualname__ = "time", "time", "time"
    time.time = wrapped


if __name__ == "__main__":
    _wrap_clock()
    out, capture_level, *names = sys.argv[1:]
    for scenario_name in names or SCENARIOS:
        print(json.dumps(measure(SCENARIOS[scenario_name], out, capture_level)), flush=True)
