"""Run scenarios: ``python -m validation.truth FOLDER LEVEL SCENARIO[,SCENARIO...] [ADDRESS]``.

Prints a line of JSON for each. The address is that of a cluster on `validation.hosts`; this process
is their client.
"""

import json
import os
import sys

from validation.hosts import SITE
from validation.hosts.sitecustomize import wrap_clock
from validation.truth import SCENARIOS, measure

if __name__ == "__main__":
    # Before distributed is imported, here and in the workers, so that a scenario can set clocks.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), os.environ["PYTHONPATH"]])
    wrap_clock()
    out, capture_level, names, *address = sys.argv[1:]
    for scenario_name in names.split(","):
        result = measure(SCENARIOS[scenario_name], out, capture_level, *address)
        print(json.dumps(result), flush=True)
