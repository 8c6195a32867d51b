"""The ledger of regressions: events, append only, one immutable file each.

``ledger/<id>.json`` holds what was seen on a night: a regression opened, grew, recovered, ... What
the events amount to is worked out when they are read (`benchkit.analysis.regression.regression`), so
ledgers merge by copying files, as everything in a store does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from benchkit.errors import UsageError
from benchkit.measure.run_ids import new_id
from benchkit.store.files import LocalFiles

__all__ = ["FOLDER", "KINDS", "add_event", "read_events"]

FOLDER = "ledger"
#: What can be said of a night.
KINDS = (
    "opened",  # a change for the worse that lasts
    "placed",  # known by now more exactly than when it was opened
    "grown",  # worse again
    "eased",  # better, but not as it was
    "recovered",  # as it was before
    "ended",  # can no longer be told: the workload or the cluster became another one
    "improved",  # a change for the better
    "set_aside",  # the machine's doing, as far as the night tells
    "dismissed",  # measured again at once, and not there
    "night",  # a night was judged: how much of what
)


def add_event(files: LocalFiles, kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write an event and return it with its id.

    Raises
    ------
    UsageError
        There is no such kind.
    StoreError
        It could not be written.
    """
    if kind not in KINDS:
        raise UsageError(f"ledger: no event is called {kind!r}: use {', '.join(KINDS)}")
    event = {**_finite(facts), "id": new_id(), "kind": kind}
    files.create(f"{FOLDER}/{event['id']}.json", json.dumps(event, indent=1).encode())
    return event


def _finite(value: Any) -> Any:
    """Return plain data without infinities and NaN, which are no JSON."""
    if isinstance(value, Mapping):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_events(files: LocalFiles) -> list[dict[str, Any]]:
    """Return all events in the order in which they were written."""
    events = []
    for name in files.list(FOLDER, ".json"):
        with suppress(ValueError):  # damaged: `check` reports it
            event = json.loads(files.read(name))
            if isinstance(event, dict) and event.get("kind") in KINDS:
                events.append(event)
    return sorted(events, key=lambda event: str(event.get("id", "")))
