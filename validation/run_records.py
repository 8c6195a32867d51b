"""Rows of a store's index, in the form that a history reads."""

import json

import pandas as pd

from benchkit.measure.run_ids import new_id

FIRST = pd.Timestamp("2026-03-01T02:00", tz="UTC")


def run_record(night, *, tagged=True, **facts):
    started = FIRST + pd.Timedelta(days=night)
    return {
        "id": new_id(),
        "workload": "array.sum",
        "category": "array",
        "environment": "tip",
        "host": "ci",
        "scale": 1.0,
        "capture": "full",
        "version": 1,
        "source_hash": "a",
        "cluster": "LocalCluster",
        "n_workers": 2,
        "n_threads": 2,
        "memory_limit": 2**31,
        "arm": "tip",
        "experiment": f"e{night}",
        "tags": json.dumps({"night": started.tz_localize(None).isoformat()} if tagged else {}),
        "started": started,
        "outcome": "ok",
        "comparable": True,
        "duration": 10.0,
        **facts,
    }
