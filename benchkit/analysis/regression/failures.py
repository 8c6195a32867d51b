"""What the outcomes of a night say: workloads that fail since tonight, or work again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchkit.analysis.regression.history import SERIES_FIELDS, History
from benchkit.analysis.regression.level_events import plain
from benchkit.analysis.regression.regression import FAILING, Regression, regression_id, series_name

__all__ = ["judge_outcomes"]

#: A workload must have ended ok on so many nights before its failure is news, and on so many
#: nights after it to have recovered.
OK_BEFORE, OK_AFTER = 3, 2
_HARMLESS = ("", "ok", "skipped", "infrastructure")


def judge_outcomes(
    history: History,
    night: str,
    fresh: Mapping[tuple[str, str], str],
    known: Mapping[tuple[str, ...], Regression],
    control: str | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return workloads that fail since tonight, and other news of those that failed.

    One that fails in the control environment too is not the doing of the code under test.
    """
    opened, others = [], []
    keys = history.runs.drop_duplicates("key").set_index("key")
    bad = ~np.isin(history.outcomes[:, -1], _HARMLESS)
    hit = keys.loc[[key for key in np.flatnonzero(bad) if key in keys.index]]
    in_control = set(hit.loc[hit["environment"] == control, "workload"])
    for key, outcomes in enumerate(history.outcomes):
        about = {**keys.loc[key, list(SERIES_FIELDS)].to_dict(), "metric": FAILING}
        group = (str(about["environment"]), str(about["host"]))
        if group not in fresh or not outcomes[-1]:
            continue
        past = [outcome for outcome in outcomes if outcome not in ("", "infrastructure")]
        one = known.get(series_name(about))
        fact = {**plain(about), "seen": night}
        if one is not None:
            if past[-OK_AFTER:] == ["ok"] * OK_AFTER:
                others.append({**fact, "regression": one.id, "kind": "recovered"})
        elif bad[key] and past[-OK_BEFORE - 1 : -1] == ["ok"] * OK_BEFORE:
            fact |= {"regression": regression_id(about, night), "night": night}
            fact["reason"] = f"ended {outcomes[-1]}, and ok on {OK_BEFORE} nights before"
            if about["workload"] in in_control:
                fact["reason"] += f"; it fails in the control {control!r} too"
                others.append({**fact, "kind": "set_aside", "cause": "infrastructure"})
            else:
                opened.append({**fact, "kind": "opened", "suspect": False, "cause": "code"})
    return opened, others
