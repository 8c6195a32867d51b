"""The explanation of a regression has the task groups of the builds that were measured again."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from benchkit.experiment.nightly import diagnosis
from validation.run_trees import runs_with_stacks, store_of_runs


def test_diagnose_names_group_and_function_of_reruns(monkeypatch):
    runs = runs_with_stacks(np.random.default_rng(0), 5, ["last-good", "null", "tonight"])
    table = pd.DataFrame(
        {"id": run_id, "arm": run_id.rpartition("-")[0], "block": int(run_id[-1]),
         "workload": "etl", "outcome": "ok"}
        for run_id in runs
    )  # fmt: skip
    store = SimpleNamespace(
        runs=lambda experiment: table if experiment == "e1" else table[:0],
        **vars(store_of_runs(runs)),
    )
    monkeypatch.setattr(diagnosis, "adjacent_runs", lambda history, event: ([], []))
    event = {"workload": "etl", "metric": "duration", "again": {"experiment": "e1"}}

    facts = diagnosis.diagnose(store, None, event)

    assert facts["groups"][0].startswith("etl: group b takes 5")
    assert facts["groups"][1].startswith("etl: in group b, take (lib/core.py) is in ")
    assert facts["explanation"].startswith("In the re-runs: etl: group b takes")
    for again in ({}, {"experiment": "e2"}):
        assert "groups" not in diagnosis.diagnose(store, None, {**event, "again": again})
