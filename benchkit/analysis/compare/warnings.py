"""What a reader of a comparison must know before believing anything of it.

Tables of runs in, sentences out.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

__all__ = ["apart", "elsewhere", "left_out"]


def left_out(
    baseline: pd.DataFrame,
    sets: Mapping[str, pd.DataFrame],
    null: Mapping[str, pd.DataFrame],
    name: str,
) -> list[str]:
    """Say which runs do not count, by arm and outcome."""
    found = []
    for arm, runs in {name: baseline, **sets, **null}.items():
        if runs.empty:
            continue
        bad = runs.loc[runs["outcome"] != "ok", "outcome"].value_counts()
        if len(bad):
            what = ", ".join(f"{n} {outcome.replace('_', ' ')}" for outcome, n in bad.items())
            found.append(f"{bad.sum()} of {len(runs)} runs of {arm} left out: {what}")
    return found


def apart(blocked: bool) -> list[str]:
    """Say when arms were not measured in turns."""
    if blocked:
        return []
    return [
        "these runs were not interleaved: what the machine did in between looks like a change; "
        "`benchkit ab` measures them side by side"
    ]


#: What makes runs incomparable, whatever was changed on purpose.
_PLACE = {"host": "machine", "n_threads": "number of threads", "memory_limit": "memory limit"}


def elsewhere(baseline: pd.DataFrame, sets: Mapping[str, pd.DataFrame], name: str) -> list[str]:
    """Say when arms ran on different machines or clusters of another size."""
    found = []
    for contender, runs in sets.items():
        for field_name, words in _PLACE.items():
            if field_name not in baseline or field_name not in runs:
                continue
            sides = [set(table[field_name].dropna()) for table in (baseline, runs)]
            if all(sides) and sides[0] != sides[1]:
                texts = [", ".join(sorted(map(str, side))[:3]) for side in sides]
                found.append(f"{words}: {texts[0]} for {name}, {texts[1]} for {contender}")
    return found
