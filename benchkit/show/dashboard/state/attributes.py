"""Cached attributes of run files, shared by all sessions: packages, configuration, source."""

from __future__ import annotations

import contextlib
from typing import Any

import pandas as pd
import panel as pn

from benchkit.errors import BenchkitError
from benchkit.show.dashboard.state.cache import open_store
from benchkit.store.store import Store

__all__ = ["attributes_of", "newest_attributes"]

#: Number of newest run files to try, in case files are damaged.
MAX_FILES = 3


def attributes_of(run_id: str) -> dict[str, Any]:
    """Return the attributes of a run file; do not modify."""
    return _attributes_of(str(open_store().path), open_store().resolve(run_id))


# Packages and configuration of a run are 40 kB of text; the groups of the file are not read.
@pn.cache(max_items=200, policy="LRU")
def _attributes_of(path: str, run_id: str) -> dict[str, Any]:
    tree = Store(path, create=False).open(run_id).tree
    try:
        return {str(name): value for name, value in tree.attrs.items()}
    finally:
        tree.close()


def newest_attributes(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the attributes of the newest readable run file."""
    for run_id in runs["id"].head(MAX_FILES) if len(runs) else ():
        with contextlib.suppress(BenchkitError):
            return attributes_of(str(run_id))
    return {}
