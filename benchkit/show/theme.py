"""Colours: each activity and kind of memory has a unique colour, the same on every page.

Paul Tol's "bright" scheme, which people with any colour vision can distinguish.
"""

from __future__ import annotations

import hashlib

__all__ = [
    "ACTIVITY_COLOURS",
    "MEMORY_COLOURS",
    "OTHER",
    "SERIES",
    "distinct_colours",
    "group_colour",
]

OTHER = "#bbbbbb"
ACTIVITY_COLOURS = {
    "compute": "#4477aa",
    "transfer": "#ee6677",
    "disk-read": "#ccbb44",
    "disk-write": "#aa8800",
    "serialize": "#228833",
    "deserialize": "#66ccee",
    "other": OTHER,
}
MEMORY_COLOURS = {
    "managed": "#4477aa",
    "unmanaged_old": "#aa3377",
    "unmanaged_recent": "#ee6677",
    "spilled": "#ccbb44",
}
#: Colours of lines without a fixed colour, in order.
SERIES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566", "#44bb99")
_GROUPS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377",
    "#004488", "#bb5566", "#ddaa33", "#44bb99", "#99ddff", "#882255",
)  # fmt: skip


def group_colour(name: str) -> str:
    """Return the colour of a task group, derived from its name: equal in all runs."""
    stem = name.rpartition("-")[0] or name
    return _GROUPS[hashlib.sha256(stem.encode()).digest()[0] % len(_GROUPS)]


def distinct_colours(names: list[str]) -> list[str]:
    """Return a unique colour for each of up to twelve groups: its colour, or the next free one."""
    taken: list[str] = []
    for name in names:
        first = _GROUPS.index(group_colour(name))
        order = _GROUPS[first:] + _GROUPS[:first]
        taken.append(next((colour for colour in order if colour not in taken), OTHER))
    return taken
