"""Read and write store.json, which identifies a folder as a store and contains its format version.

The version is increased by a change that an older reader would misread, not by a new field or file
that older readers can ignore.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from benchkit.errors import AlreadyStored, InvalidStoreError, UnlistableFolder
from benchkit.measure.run_ids import new_id
from benchkit.measure.settings import setting
from benchkit.store.storage import RECORDINGS, Files, decode_object, encode_object
from benchkit.working_folder import working_folder

if TYPE_CHECKING:
    from benchkit.store.store import Store

#: Newest version of the format that this release reads, and the version that it writes.
FORMAT_VERSION = 1
_FORMAT = "benchkit-store"
_NAME = "store.json"
_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
#: Names of files or folders in an experiment: not hidden, no option of a command, in one line.
_PART = r"\w[^/\x00-\x1f\x7f]*"
#: Names of the files of a store, relative to its folder; those in ``tmp`` are not included.
STORE_FILE = re.compile(
    rf"store\.json|runs/\d{{4}}-\d{{2}}/{_ID}\.nc|(?:marks|ledger)/{_ID}\.json|index/new/{_ID}\.json"
    rf"|index/{_ID}\.parquet|(?:experiments|trash)(?:/{_PART})+"
)
#: Folders that a store may have before its first run.
_UNFINISHED_FOLDERS = {"experiments", "index", "ledger", "marks", "runs", "tmp"}


def default_store() -> str:
    """Return the path of the store that is used if none is given."""
    return str(setting("store") or working_folder() / "benchkit-store")


def read_meta(files: Files, *, create: bool) -> dict[str, Any]:
    """Return the content of store.json."""
    root = files.root
    try:
        meta: dict[str, Any] = decode_object(files.read(_NAME))
    except FileNotFoundError:
        _check_new_store(files, create)
        return {}
    except OSError as error:
        if os.path.isfile(root):
            raise InvalidStoreError(f"{root}: a file, not a store: give a folder") from error
        raise InvalidStoreError(f"{root}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidStoreError(f"{root}/{_NAME}: damaged: {error}") from error
    version = meta.get("version") if isinstance(meta, dict) else None
    if not isinstance(version, int) or meta.get("format") != _FORMAT:
        raise InvalidStoreError(f"{root}: its {_NAME} does not describe a benchkit store")
    if version > FORMAT_VERSION:
        raise InvalidStoreError(
            f"{root}: written in format {version}, but this benchkit reads formats up to "
            f"{FORMAT_VERSION}: upgrade benchkit"
        )
    return meta


def _check_new_store(files: Files, create: bool) -> None:
    """Raise unless a store may be created there, or has only lost its store.json."""
    root = files.root
    # Ignore tmp/: a writer that is creating the store writes its draft there, then store.json.
    entries = {*files.entries("")} - {"tmp"}
    has_parts = bool(entries) or files.workspace(RECORDINGS).is_dir()
    if files.exists(_NAME) or (has_parts and _is_unfinished(files, entries)):
        return
    if entries:
        raise InvalidStoreError(
            f"{root}: not a store (no {_NAME}), and not empty: give an empty or a new folder"
        )
    if not create:
        is_empty = "an empty folder, not a store" if os.path.isdir(root) else "no store there"
        raise InvalidStoreError(f"{root}: {is_empty}: `benchkit run` creates one")


def _is_unfinished(files: Files, entries: set[str]) -> bool:
    """Return whether a folder holds only files of a store, as a killed command leaves them."""
    experiments = files.entries("experiments")
    return (
        entries <= _UNFINISHED_FOLDERS
        and all(STORE_FILE.fullmatch(name) for name in files.walk())
        and all(re.fullmatch(f"experiments/{_ID}", name) for name in experiments)
    )


def write_meta(files: Files) -> dict[str, Any]:
    """Create store.json, unless another writer has created it."""
    meta = {
        "format": _FORMAT,
        "version": FORMAT_VERSION,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "id": new_id(),
    }
    with suppress(AlreadyStored):  # another writer created it first
        files.create(_NAME, encode_object(meta, indent=1))
    return read_meta(files, create=False)


def store_info(store: Store, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `Store.info` does; `meta` is the content of ``store.json``."""
    sizes = store.files.sizes()
    info = {
        "path": str(store.path),
        **{name: meta.get(name) for name in ("id", "created")},
        "version": meta.get("version", FORMAT_VERSION),
        "files": len(sizes),
        "bytes": int(sum(sizes.values())),
    }
    try:
        return info | _counts(store)
    except UnlistableFolder as error:
        return info | {"problem": str(error)}


def _counts(store: Store) -> dict[str, Any]:
    frame = store.runs(columns=["workload", "started", "outcome", "environment"])
    return {
        "runs": len(frame),
        "workloads": int(frame["workload"].nunique()),
        "environments": int(frame["environment"].nunique()),
        "outcomes": {str(k): int(v) for k, v in frame["outcome"].value_counts().items()},
        "first": frame["started"].min().isoformat() if len(frame) else None,
        "last": frame["started"].max().isoformat() if len(frame) else None,
        "marks": len(store.marks()),
        "records": len(store.files.list("index/new", ".json")),
        "segments": len(store.files.list("index", ".parquet")),
    }
