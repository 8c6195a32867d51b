"""What makes a folder a store: store.json, with the version of the format.

Versions count what an older reader would misread. A new field or file that older readers may
overlook does not raise it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

import dask

from benchkit.errors import AlreadyStored, InvalidStoreError
from benchkit.measure.run_ids import new_id
from benchkit.store.files import LocalFiles

__all__ = ["FORMAT_VERSION", "default_store", "read_meta", "write_meta"]

FORMAT_VERSION = 1
_FORMAT = "benchkit-store"
_NAME = "store.json"


def default_store() -> str:
    """Return ``$BENCHKIT_STORE``, Dask's configuration ``benchkit.store``, or ./benchkit-store."""
    return (
        os.environ.get("BENCHKIT_STORE")
        or dask.config.get("benchkit.store", None)
        or "./benchkit-store"
    )


def read_meta(files: LocalFiles, *, create: bool) -> dict[str, Any]:
    """Return what store.json says; empty if a store can be made here.

    Parameters
    ----------
    files : LocalFiles
        The folder.
    create : bool
        Whether there may be no store yet.

    Raises
    ------
    InvalidStoreError
        The folder is something else, its format is newer, or there is no store and `create` is
        false.
    """
    root = files.root
    try:
        meta = json.loads(files.read(_NAME))
    except FileNotFoundError:
        _refuse_what_is_no_store(files, create)
        return {}
    except OSError as error:
        if root.is_file():
            raise InvalidStoreError(f"{root}: a file, not a store: give a folder") from error
        raise InvalidStoreError(f"{root}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidStoreError(f"{root}/{_NAME}: damaged, it is not JSON: {error}") from error
    version = meta.get("version") if isinstance(meta, dict) else None
    if not isinstance(version, int) or meta.get("format") != _FORMAT:
        raise InvalidStoreError(f"{root}: its {_NAME} is not that of a benchkit store")
    if version > FORMAT_VERSION:
        raise InvalidStoreError(
            f"{root}: written in format {version}, and this benchkit reads up to "
            f"{FORMAT_VERSION}: upgrade benchkit"
        )
    return meta


def _refuse_what_is_no_store(files: LocalFiles, create: bool) -> None:
    root = files.root
    if not create and not root.exists():
        raise InvalidStoreError(f"{root}: no store there: `benchkit run` makes one")
    # A writer that makes the store right now has its draft in tmp/, and its file a moment later.
    strange = [entry for entry in os.listdir(root) if entry != "tmp"] if root.is_dir() else []
    if strange and not files.exists(_NAME):
        raise InvalidStoreError(
            f"{root}: not a store (no {_NAME}), and not empty: give an empty or a new folder"
        )
    if not create:
        raise InvalidStoreError(
            f"{root}: an empty folder, no store: `benchkit run` makes one there"
        )


def write_meta(files: LocalFiles) -> dict[str, Any]:
    """Make the folder a store, unless somebody was faster, and return what store.json says.

    Raises
    ------
    StoreError
        It could not be written.
    """
    meta = {
        "format": _FORMAT,
        "version": FORMAT_VERSION,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "id": new_id(),
    }
    with suppress(AlreadyStored):  # another writer came first
        files.create(_NAME, json.dumps(meta, indent=1).encode())
    return read_meta(files, create=False)
