"""Run scenarios: ``python -m helpers.truth FOLDER LEVEL SCENARIO...``, a JSON line each."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

from helpers.truth import SCENARIOS, measure

if __name__ == "__main__":
    # Before distributed is imported, here and in the processes of the workers.
    site = Path(__file__).parent / "clock_site"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), os.environ["PYTHONPATH"]])
    runpy.run_path(str(site / "sitecustomize.py"))
    out, capture_level, *names = sys.argv[1:]
    for scenario_name in names or SCENARIOS:
        print(json.dumps(measure(SCENARIOS[scenario_name], out, capture_level)), flush=True)
