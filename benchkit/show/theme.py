"""Colours: each activity and kind of memory has a unique colour, the same on every page.

Paul Tol's "bright" scheme, which people with any colour vision can distinguish.
"""

from __future__ import annotations

import hashlib

#: Grey of activities and groups without a colour.
OTHER = "#bbbbbb"
#: Activity of a thread -> colour.
ACTIVITY_COLOURS = {
    "compute": "#4477aa",
    "transfer": "#ee6677",
    "disk-read": "#ccbb44",
    "disk-write": "#aa8800",
    "serialize": "#228833",
    "deserialize": "#66ccee",
    "failed": "#882255",
    "seceded": "#bbbbbb",
    "other": OTHER,
}
#: Cause of wall time -> colour; that of the activity where a cause is one.
CAUSE_COLOURS = {
    "computing": "#4477aa",
    "not parallel": "#99bbdd",
    "straggler": "#66ccee",
    "seceded": "#aa7744",
    "unfinished": "#225588",
    "no processor": "#bb5566",
    "restricted": "#ddaa33",
    "transfer": "#ee6677",
    "disk": "#ccbb44",
    "worker paused": "#882255",
    "no worker": "#332288",
    "stealing": "#44aa99",
    "queued": "#117733",
    "worker loop": "#ee8866",
    "scheduler": "#aa3377",
    "messages": "#cc99bb",
    "graph": "#228833",
    "client graph": "#77bb77",
    "gather": "#999933",
    "client": OTHER,
    "unexplained": "#dddddd",
}
#: Kind of memory -> colour.
MEMORY_COLOURS = {
    "managed": "#4477aa",
    "unmanaged_old": "#aa3377",
    "unmanaged_recent": "#ee6677",
    "spilled": "#ccbb44",
}
#: Colours of differences.
WORSE, BETTER, UNCHANGED = "#b2182b", "#2166ac", "#8a95a2"
#: Colours of lines without a fixed colour, in order.
SERIES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566", "#44bb99")
#: Colours of task groups.
_GROUP_COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377",
    "#0066bb", "#bb5566", "#ddaa33", "#44bb99", "#99ddff", "#882255",
)  # fmt: skip


def group_colour(name: str) -> str:
    """Return the colour of a task group, which is equal in all runs."""
    stem = name.rpartition("-")[0] or name
    return _GROUP_COLOURS[hashlib.sha256(stem.encode()).digest()[0] % len(_GROUP_COLOURS)]


def distinct_colours(names: list[str]) -> list[str]:
    """Return distinct colours of up to twelve task groups."""
    taken: list[str] = []
    for name in names:
        first = _GROUP_COLOURS.index(group_colour(name))
        order = _GROUP_COLOURS[first:] + _GROUP_COLOURS[:first]
        taken.append(next((colour for colour in order if colour not in taken), OTHER))
    return taken
