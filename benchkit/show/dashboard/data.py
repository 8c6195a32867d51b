"""What views read: the store, its index and its runs, kept for as long as they are looked at.

Run files never change, so a run is kept by its id; the index is read again for each page.
"""

from __future__ import annotations

import os
from typing import Any

import pandas as pd
import panel as pn

from benchkit.store.run import Run
from benchkit.store.store import Store

__all__ = ["STORE_VARIABLE", "open_run", "open_store", "runs_table"]

#: How `benchkit dashboard` tells the app which store; `panel serve` reads the same variable.
STORE_VARIABLE = "BENCHKIT_STORE"


def open_store() -> Store:
    """Return the store that this server shows, which must exist.

    Raises
    ------
    BadStore
        It does not.
    """
    return Store(os.environ.get(STORE_VARIABLE) or None, create=False)


def runs_table() -> pd.DataFrame:
    """Return the index of the store, newest run first."""
    frame = open_store().runs()
    return frame.iloc[::-1].reset_index(drop=True)


def open_run(run_id: str) -> Run:
    """Return a run by its id or the beginning of it.

    Raises
    ------
    UnknownRun
        There is none.
    UnreadableRun
        Its file is damaged.
    """
    store = open_store()
    return Run(_tree(str(store.path), store.resolve(run_id)))


# Some pages of one run, and those of a colleague, in quick succession: eight are enough.
@pn.cache(max_items=8, policy="LRU")
def _tree(path: str, run_id: str) -> Any:
    return Store(path, create=False).open(run_id).load()
