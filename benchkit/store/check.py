"""Compare the files of a store with its index: unlisted runs, foreign files, damage."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchkit.errors import AlreadyStored, StoreError, UnreadableRun
from benchkit.formatting import counted
from benchkit.measure.recording import WRITER_SILENT_S, is_abandoned, waits_for_adoption
from benchkit.store.artifacts import move_artifacts, record_artifacts
from benchkit.store.index.catalogue import Catalogue
from benchkit.store.manifest import STORE_FILE
from benchkit.store.runfile.file import (
    accepted_record,
    encode_run,
    index_record,
    run_name,
    stored_record,
)
from benchkit.store.storage import RECORDINGS, Files

__all__ = ["CheckReport", "inspect_store"]

#: Files that are copied to the local cache at a time: all together may exceed its limit.
_FETCHED_FILES = 500
#: Beginnings of the names of files whose bytes are checked.
_READ_FOLDERS = ("runs/", "marks/", "ledger/")


@dataclass(frozen=True, repr=False)
class CheckReport:
    """Result of a check of a store."""

    runs: int = 0  # Number of runs with a readable file
    # adopted, orphans: Runs missing from the index: added by this check, or not yet added.
    adopted: list[str] = field(default_factory=list)
    # Runs made from recordings of killed processes.
    rescued: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # Ids in the index without a run file
    # Damaged runs and marks, each with its reason.
    unreadable: list[str] = field(default_factory=list)
    damaged_runs: list[str] = field(default_factory=list)  # Ids of the damaged runs
    # Ids of damaged runs that were moved to the folder `trash`.
    set_aside: list[str] = field(default_factory=list)
    # Unreadable index files; a repair deletes them and rebuilds the index from the runs.
    damaged_index: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)  # Files that are not part of a store
    leftovers: list[str] = field(default_factory=list)  # Unfinished writes of processes that ended
    waiting: int = 0  # Finished recordings of ended processes, which a later check stores as runs
    # Repairs that failed, such as on a full disk, with the reason.
    not_repaired: list[str] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether no run is unlisted, missing or damaged; strangers and leftovers are harmless."""
        return not (self.orphans or self.missing or self.unreadable)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return {**asdict(self), "healthy": self.healthy}

    def __repr__(self) -> str:
        lines = [f"{counted(self.runs, 'run')}, {'healthy' if self.healthy else 'not healthy'}"]
        for name, text in (
            ("adopted", "missing from the index: added"),
            ("rescued", "recorded by killed processes: added"),
            ("orphans", "missing from the index"),
            ("missing", "in the index, but without a run file"),
            ("unreadable", "damaged"),
            ("damaged_index", "damaged index files: rebuilt from the runs"),
            ("strangers", "files that are not part of a store"),
            ("leftovers", "unfinished writes"),
            ("not_repaired", "not repaired"),
        ):
            names = getattr(self, name)
            if names:
                lines.append(f"{len(names)} {text}:")
                lines += [f"  {item if item.isprintable() else repr(item)}" for item in names[:20]]
                lines += [f"  ... and {len(names) - 20} more"] if len(names) > 20 else []
        if self.waiting:
            verb, minutes = "waits" if self.waiting == 1 else "wait", WRITER_SILENT_S / 60
            text = f"{counted(self.waiting, 'recording')} {verb} for adoption"
            lines.append(f"{text}: check again {minutes:.0f} minutes after the command was killed")
        if self.set_aside:
            text = f"{counted(len(self.set_aside), 'damaged run')} moved to the folder trash: "
            lines.append(f"{text}`benchkit store copy OTHER THIS` brings back what another has")
        elif self.damaged_runs:
            lines.append(
                "`benchkit store check --set-aside` moves damaged runs to the folder trash; then "
                "`benchkit store copy OTHER THIS` brings back what another store has"
            )
        return "\n".join(lines)


def inspect_store(
    files: Files, catalogue: Catalogue, *, repair: bool, quick: bool = False
) -> CheckReport:
    """Check every file of a store; with `repair`, add unlisted runs and remove leftovers.

    The index is read before the files. A run that is added during the check looks unlisted; adding
    its record has the same effect as the pending write of its writer.
    """
    failed: list[str] = []
    rescued = _rescue(files, catalogue, failed) if repair else []
    files.fetch([*files.list("index/new"), *files.list("index")], fresh=not quick)
    damaged = catalogue.damaged()
    if repair:
        _delete(files, damaged, failed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the damage is in the report
        digests = catalogue.digests()
    listed = set(digests)
    present: set[str] = set()
    pruned = {name.rpartition("/")[2].removesuffix(".nc") for name in files.walk("trash")}
    n_readable = 0
    adopted, orphans, unreadable, strangers, bad = [], [], [], [], []
    for name in _fetched(files, fresh=not quick):
        if not STORE_FILE.fullmatch(name):
            strangers.append(name)
        elif name.startswith(("marks/", "ledger/")):
            unreadable += _json_problems(files, name)
        elif name.startswith("runs/"):
            run_id = name.rpartition("/")[2].removesuffix(".nc")
            if name != run_name(run_id):
                strangers.append(name)
                continue
            present.add(run_id)
            if quick and run_id in listed:
                n_readable += 1
                continue
            try:
                record = _verified_record(files.path(name), run_id, digests.get(run_id))
                if run_id not in listed:
                    accepted_record(files.path(name))
            except UnreadableRun as error:
                unreadable.append(str(error))
                if os.access(files.path(name), os.R_OK):  # without permission it may be whole
                    bad.append(run_id)
                continue
            n_readable += 1
            if run_id in listed:
                continue
            if not repair:
                orphans.append(run_id)
                continue
            try:
                if catalogue.add_existing(record):
                    adopted.append(run_id)
            except StoreError as error:
                orphans.append(run_id)
                failed.append(str(error))
    restored = (pruned & listed) - present  # a concurrent compaction restored pruned records
    if restored and repair:
        try:
            catalogue.remove(restored)
        except (StoreError, OSError) as error:
            failed.append(str(error))
    leftovers = files.leftovers()
    if repair:
        _delete(files, leftovers, failed)
    return CheckReport(
        runs=n_readable,
        adopted=adopted,
        rescued=rescued,
        orphans=orphans,
        missing=sorted(listed - present - restored),
        unreadable=unreadable,
        damaged_runs=bad,
        damaged_index=damaged,
        strangers=strangers,
        leftovers=list(leftovers),
        waiting=sum(map(waits_for_adoption, _recordings(files))),
        not_repaired=failed,
    )


def _delete(files: Files, names: Iterable[str], failed: list[str]) -> None:
    for name in names:
        try:
            files.delete(name)
        except OSError as error:
            failed.append(f"{files.path(name)}: not deleted: {error.strerror or error}")
        except StoreError as error:
            failed.append(str(error))


def _recordings(files: Files) -> list[Path]:
    heads = files.workspace(RECORDINGS).glob("**/head.json")
    return sorted(head.parent for head in heads)


def _fetched(files: Files, *, fresh: bool) -> Iterator[str]:
    """Iterate over all files; if `fresh`, those of runs, marks and events are copied before."""
    names = list(files.walk())
    for start in range(0, len(names), _FETCHED_FILES):
        part = names[start : start + _FETCHED_FILES]
        if fresh:
            own = (n for n in part if n.startswith(_READ_FOLDERS) and STORE_FILE.fullmatch(n))
            files.fetch(own, fresh=True)
        yield from part


def _rescue(files: Files, catalogue: Catalogue, failed: list[str]) -> list[str]:
    """Build runs from the recordings of killed processes and return their ids."""
    try:
        files.rescue()
    except StoreError as error:
        failed.append(str(error))
    rescued = []
    for path in _recordings(files):
        if not is_abandoned(path):
            continue
        # Imports distributed, which takes a fifth of the time of commands that read a store.
        from benchkit.store.build.run_from_recording import run_from_recording

        try:
            tree = run_from_recording(path)
            ids = str(tree.attrs.get("experiment") or ""), str(tree.attrs["id"])
            record_artifacts(tree, path, *ids)
            run_id, record, data = encode_run(tree)
        except Exception as error:  # a damaged recording must not hide the others
            warnings.warn(f"{path}: skipped, no run can be built: {error}", stacklevel=2)
            continue
        try:
            with suppress(AlreadyStored):
                files.create(run_name(run_id), data)
                rescued.append(run_id)
            catalogue.add_existing(index_record(record, data))
        except StoreError as error:
            failed.append(str(error))
            continue
        with suppress(OSError, StoreError):
            move_artifacts(path, files, *ids)
    return rescued


def _verified_record(path: Path, run_id: str, digest: str | None) -> dict[str, Any]:
    """Return the record of a run file; raise an error if it is not the file that was added."""
    record = stored_record(path)
    if record.get("id") != run_id:
        raise UnreadableRun(f"{path}: contains run {record.get('id')}")
    if digest and record["digest"] != digest:
        raise UnreadableRun(f"{path}: not the file that was added: another SHA-256 digest")
    return record


def _json_problems(files: Files, name: str) -> list[str]:
    """Return the problem of a mark or a ledger event, at most one."""
    folder, _, rest = name.partition("/")
    try:
        content = json.loads(files.read(name))
        if f"{content['id']}.json" == rest and isinstance(content["kind"], str):
            return []
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    noun = "mark" if folder == "marks" else "event of the ledger"
    return [f"{files.path(name)}: damaged {noun}"]
