"""Definitions of metrics."""

import json

from benchkit.store.schema import METRICS


def test_metric_that_runs_define_differently_has_no_direction(monkeypatch):
    monkeypatch.setattr(METRICS, "own", {})

    for units in ("s", "s"):
        METRICS.define(json.dumps({"lag": {"units": units, "better": "lower"}}))
    assert (METRICS["lag"].units, METRICS["lag"].better) == ("s", "lower")

    METRICS.define(json.dumps({"lag": {"units": "ms", "better": "lower"}}))
    assert METRICS["lag"].better == ""
    assert "different units" in METRICS["lag"].long_name
