"""The ledger of regressions: events, append only, one immutable file each.

``ledger/<id>.json`` holds one event of a night: a regression opened, grew, recovered, ...
`benchkit.analysis.regression.regression` derives regressions from the events on reading, so
ledgers are merged by copying files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchkit.errors import UsageError
from benchkit.measure.run_ids import new_id
from benchkit.store.storage import Files, encode_object
from benchkit.values import json_safe

#: Folder of a store with the events.
FOLDER = "ledger"
#: Kinds of events; the values are stored.
KINDS = (
    "opened",  # a lasting change for the worse
    "placed",  # the night or the size of the change is known more exactly
    "grown",  # became worse
    "eased",  # improved, but not to the level before
    "recovered",  # back to the level before
    "ended",  # no longer comparable: workload or cluster changed
    "improved",  # a change for the better
    "set_aside",  # caused by the machine, not by the code
    "tolerated",  # a change for the worse below the threshold that a team set
    "dismissed",  # not reproduced when measured again
    "undecided",  # suspected, measured again, neither confirmed nor dismissed
    "night",  # summary of a night: counts per kind
)


def add_event(files: Files, kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write an event."""
    if kind not in KINDS:
        raise UsageError(f"ledger: unknown kind of event {kind!r}: use {', '.join(KINDS)}")
    event = {**json_safe(facts), "id": new_id(), "kind": kind}
    files.create(f"{FOLDER}/{event['id']}.json", encode_object(event, indent=1))
    return event


def read_events(files: Files) -> list[dict[str, Any]]:
    """Return all events, oldest first."""
    events = [event for event in files.read_objects(FOLDER) if event.get("kind") in KINDS]
    return sorted(events, key=lambda event: str(event.get("id", "")))
