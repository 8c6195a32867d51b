"""Compare the files of a store with its index: unlisted runs, foreign files, damage."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchkit.errors import AlreadyStored, StoreError, UnlistableFolder, UnreadableRun
from benchkit.formatting import counted
from benchkit.measure.recording import WRITER_SILENT_S, is_abandoned, waits_for_adoption
from benchkit.store.arrow import records_to_table, unite, without_dictionaries
from benchkit.store.artifacts import move_artifacts, record_artifacts
from benchkit.store.index import Index
from benchkit.store.manifest import STORE_FILE
from benchkit.store.runfile import accepted_record, encode_run, stored_record
from benchkit.store.storage import RECORDINGS, Files, decode_object, index_record, run_name
from benchkit.values import json_safe

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
    damaged_objects: list[str] = field(default_factory=list)  # Names of damaged marks and events
    # Runs that were in the index with other values than in their files.
    corrected: list[str] = field(default_factory=list)
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
            ("corrected", "in the index with other values than in the run: corrected"),
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


def inspect_store(files: Files, index: Index, *, repair: bool, quick: bool = False) -> CheckReport:
    """Check every file of a store; with `repair`, add unlisted runs and remove leftovers.

    The index is read before the files. A run that is added during the check looks unlisted; adding
    its record has the same effect as the pending write of its writer.
    """
    failed: list[str] = []
    rescued = _rescue(files, index, failed) if repair else []
    unreadable, strangers, bad, bad_objects = [], [], [], []
    damaged: dict[str, str] = {}
    listed: set[str] | None = None
    try:
        damaged = index.damaged(fresh=not quick)
        if repair:
            _delete(files, damaged, failed)
        index.left_out = tuple(damaged)
        listed = index.ids()
    except UnlistableFolder as error:
        unreadable.append(f"{error}; its runs were not compared with the files")
    present: set[str] = set()
    pruned = set()
    with suppress(UnlistableFolder):  # the walk over all files names it
        pruned = {name.rpartition("/")[2].removesuffix(".nc") for name in files.walk("trash")}
    n_readable = 0
    added: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    for names in _fetched(files, fresh=not quick):
        records = {}
        for name in names:
            if not STORE_FILE.fullmatch(name):
                strangers.append(name)
                if name in ("marks//", "ledger//"):
                    unreadable += _listing_problem(files, name)
            elif name.startswith(("marks/", "ledger/")) or name == "store.json":
                problem = _object_problem(files, name)
                unreadable += problem
                bad_objects += [name] if problem else []
            elif name.startswith("runs/"):
                run_id = name.rpartition("/")[2].removesuffix(".nc")
                if name != run_name(run_id):
                    strangers.append(name)
                    continue
                present.add(run_id)
                if quick and listed and run_id in listed:
                    n_readable += 1
                    continue
                try:
                    records[run_id] = _verified_record(files.path(name), run_id)
                    if listed is not None and run_id not in listed:
                        accepted_record(files.path(name))
                except UnreadableRun as error:
                    records.pop(run_id, None)
                    unreadable.append(str(error))
                    if os.access(files.path(name), os.R_OK):  # without permission it may be whole
                        bad.append(run_id)
        n_readable += len(records)
        if listed is None:
            continue
        differing = _differing(index, {i: r for i, r in records.items() if i in listed})
        for run_id in (i for i, is_other_file in differing.items() if is_other_file):
            path = files.path(run_name(run_id))
            unreadable.append(f"{path}: not the file that was added: another SHA-256 digest")
            bad.append(run_id)
            del records[run_id]
            n_readable -= 1
        wrong += [records[i] for i, is_other_file in differing.items() if not is_other_file]
        added += [record for run_id, record in records.items() if run_id not in listed]
    if repair:
        added, orphans = _add_to_index(index, added, failed)
        _correct(index, wrong, failed)
    else:
        orphans, added = [record["id"] for record in added], []
    restored = (
        pruned & (listed or set())
    ) - present  # a concurrent compaction restored pruned records
    if restored and repair:
        try:
            index.remove(restored)
        except (StoreError, OSError) as error:
            failed.append(str(error))
    leftovers = files.leftovers()
    if repair:
        _delete(files, leftovers, failed)
    return CheckReport(
        runs=n_readable,
        adopted=[record["id"] for record in added],
        rescued=rescued,
        orphans=orphans,
        missing=sorted((listed or set()) - present - restored),
        unreadable=unreadable,
        damaged_runs=bad,
        damaged_objects=bad_objects,
        damaged_index=sorted(damaged),
        corrected=[record["id"] for record in wrong],
        strangers=strangers,
        leftovers=list(leftovers),
        waiting=sum(map(waits_for_adoption, _recordings(files))),
        not_repaired=failed,
    )


def put_aside(files: Files, index: Index, report: CheckReport) -> CheckReport:
    """Move what a check found damaged to the folder ``trash``."""
    objects = [name for name in report.damaged_objects if "/" in name]
    if not (objects or report.damaged_runs):
        return report
    try:
        index.prune(report.damaged_runs)
        for name in objects:
            files.move(name, f"trash/{name}")
    except StoreError as error:
        return replace(report, not_repaired=[*report.not_repaired, str(error)])
    return replace(report, set_aside=[*report.damaged_runs, *objects])


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


def _fetched(files: Files, *, fresh: bool) -> Iterator[list[str]]:
    """Iterate over parts of all names; if `fresh`, runs, marks and events are copied before."""
    names = list(files.walk())
    for start in range(0, len(names), _FETCHED_FILES):
        part = names[start : start + _FETCHED_FILES]
        if fresh:
            own = (n for n in part if n.startswith(_READ_FOLDERS) and STORE_FILE.fullmatch(n))
            files.fetch(own, fresh=True)
        yield part


def _differing(index: Index, records: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Return the runs whose row in the index differs, and whether their file is another one."""
    if not records:
        return {}
    ids = pa.array(sorted(records))
    rows = index.select(
        {"id"},
        lambda table: (table, pc.is_in(table["id"], ids).to_numpy(), None),
        pc.field("id").isin(ids),
    )
    expected = records_to_table([json_safe(records[run_id]) for run_id in rows["id"].to_pylist()])
    both = without_dictionaries(unite([rows, expected])).to_pylist()
    differing = {}
    for row, other in zip(both[: len(expected)], both[len(expected) :], strict=True):
        names = [name for name, value in row.items() if value != other[name]]
        # The first stores had no digests in the index.
        names = [name for name in names if name != "digest" or row["digest"] is not None]
        if names:
            differing[row["id"]] = "digest" in names
    return differing


def _add_to_index(
    index: Index, records: list[dict[str, Any]], failed: list[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Add runs to the index; return those that were added, and the ids of the others."""
    added, orphans = [], []
    for record in records:
        try:
            if index.add_existing(record):
                added.append(record)
        except StoreError as error:
            orphans.append(record["id"])
            failed.append(str(error))
    return added, orphans


def _correct(index: Index, records: list[dict[str, Any]], failed: list[str]) -> None:
    """Replace rows of the index by the records of the runs."""
    try:
        if records:
            index.remove([record["id"] for record in records])
            index.add_many(records)
    except (StoreError, OSError) as error:
        failed.append(str(error))


def _rescue(files: Files, index: Index, failed: list[str]) -> list[str]:
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
            index.add_existing(index_record(record, data))
        except StoreError as error:
            failed.append(str(error))
            continue
        with suppress(OSError, StoreError):
            move_artifacts(path, files, *ids)
    return rescued


def _verified_record(path: Path, run_id: str) -> dict[str, Any]:
    """Return the record of a run file; raise an error if it is that of another run."""
    record = stored_record(path)
    if record.get("id") != run_id:
        raise UnreadableRun(f"{path}: contains run {record.get('id')}")
    return record


def _listing_problem(files: Files, name: str) -> list[str]:
    """Return why a folder whose files every command reads cannot be listed, at most one text."""
    try:
        files.list(name.rstrip("/"))
    except UnlistableFolder as error:
        return [str(error)]
    return []


def _object_problem(files: Files, name: str) -> list[str]:
    """Return the problem of a mark, an event of the ledger or store.json, at most one."""
    folder, _, rest = name.rpartition("/")
    try:
        content = decode_object(files.read(name))
        if not folder or (f"{content['id']}.json" == rest and isinstance(content["kind"], str)):
            return []
    except (ValueError, KeyError):
        pass
    nouns = {"marks": "mark", "ledger": "event of the ledger", "": "description of the store"}
    return [f"{files.path(name)}: damaged {nouns[folder]}"]
