"""Marks: opinions on runs, added later and applied on reading; no file is deleted or rewritten.

bankruptcy  runs before a time are not comparable with later runs
exclude     the selected runs are not comparable
accept      a change is intended; used by the ledger of regressions, changes no run
decide      what was found out about a change, with the evidence; changes neither run nor state
rename      a workload, parameter or environment has a new name
threshold   changes for the worse below a size open no regression
undo        cancels a mark (also an undo)

A mark is a JSON object in ``marks/<id>.json``: kind, reason, by, and which runs are meant, as in
`benchkit.store.filters.Selection`. Marks are applied in the order of their ids, which is the order
of time, so that copies of a store agree.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from benchkit.errors import UsageError, did_you_mean
from benchkit.measure.arguments import list_of
from benchkit.measure.run_ids import new_id
from benchkit.store.arrow import decode_texts, encode_texts
from benchkit.store.filters import SELECTORS, Selection, matching, parse_moment
from benchkit.store.index import Index
from benchkit.store.schema import MARK_COLUMNS, METRICS
from benchkit.store.storage import encode_object
from benchkit.values import decode_json

_REQUIRED = {
    "accept": ("workload",),
    "bankruptcy": ("before",),
    "decide": ("workload", "verdict"),
    "exclude": (),
    "rename": ("from", "to"),
    "threshold": ("workload", "metric", "size"),
    "undo": ("mark",),
}
_ALLOWED = {
    "accept": (*SELECTORS, "metric", "at", "regression", "evidence"),
    "bankruptcy": SELECTORS,
    "decide": (*SELECTORS, "metric", "at", "regression", "verdict", "evidence"),
    "exclude": SELECTORS,
    "rename": ("from", "to", "field", "workload"),
    "threshold": ("workload", "where", "metric", "size"),
    "undo": ("mark",),
}
#: Kinds of marks.
KINDS = tuple(_REQUIRED)
#: Values of ``verdict`` of a decision: the code became slower and must be mended, it did so on
#: purpose, nothing changed, the machine changed.
VERDICTS = ("real", "intended", "noise", "machine")
#: Values of ``field`` of a rename; default `workload`.
RENAMED_FIELDS = ("workload", "parameter", "environment")


def new_mark(kind: str, *, reason: str = "", by: str = "", **what: Any) -> dict[str, Any]:
    """Return a complete, validated mark."""
    if kind not in KINDS:
        raise UsageError(f"mark {kind!r}: {did_you_mean(kind, KINDS, 'use ' + ', '.join(KINDS))}")
    what = {name.removesuffix("_"): value for name, value in what.items() if value is not None}
    if kind == "bankruptcy":
        what.setdefault("before", "0s")
    for name in what:
        if name not in _ALLOWED[kind]:
            hint = did_you_mean(name, _ALLOWED[kind], "use " + ", ".join(_ALLOWED[kind]))
            raise UsageError(f"mark {kind}: unknown option {name!r}: {hint}")
    missing = [name for name in _REQUIRED[kind] if not what.get(name)]
    if missing:
        raise UsageError(f"mark {kind}: {', '.join(missing)} is missing")
    if kind == "exclude" and not any(what.get(name) for name in SELECTORS):
        raise UsageError(f"mark exclude: select runs by {', '.join(SELECTORS)}")
    if kind == "rename" and what.setdefault("field", "workload") not in RENAMED_FIELDS:
        raise UsageError(f"mark rename: field must be one of {', '.join(RENAMED_FIELDS)}")
    if kind == "decide" and what["verdict"] not in VERDICTS:
        raise UsageError(f"mark decide: verdict must be one of {', '.join(VERDICTS)}")
    metric = what.get("metric")
    if metric is not None and metric not in (*METRICS, "outcome", "source_hash"):
        hint = did_you_mean(str(metric), METRICS, "see `benchkit list metrics`")
        raise UsageError(f"mark {kind}: no metric named {metric!r}: {hint}")
    if kind == "threshold":
        what["size"] = _size(what["size"])
    for name in ("runs", "evidence"):
        if name in what:
            what[name] = list_of(what[name], name)
    for name in ("since", "before", "at"):
        if name in what:
            what[name] = parse_moment(what[name]).isoformat()
    return {"id": new_id(), "kind": kind, "reason": reason, "by": by, **what}


def _size(value: Any) -> float:
    """Return the size of a change as a share; text such as ``10%`` or ``0.1``."""
    text = str(value).strip()
    try:
        size = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        size = float("nan")
    if not 0 < size < math.inf or (size >= 1 and not text.endswith("%")):  # 5 would be 500 %
        raise UsageError(
            f"mark threshold: size {value!r}: must be a share above 0, such as 10% or 0.1"
        )
    return size


def threshold_mark(
    marks: Iterable[Mapping[str, Any]], about: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the newest active threshold for a workload, environment, ... and metric."""
    series = pa.table({name: [value] for name, value in about.items()})
    for mark in reversed(active_marks(marks)):
        if mark.get("kind") != "threshold" or mark.get("metric") != about["metric"]:
            continue
        try:
            if matching(series, Selection.from_mark(mark))[0]:
                return {"by": "", "reason": "", **mark, "size": _size(mark["size"])}
        except _INVALID as error:
            _warn_skipped(mark, error)
    return None


def encode_mark(mark: Mapping[str, Any]) -> bytes:
    """Return the JSON bytes of a mark."""
    try:
        return encode_object(dict(mark), indent=1)
    except (TypeError, ValueError) as error:
        raise UsageError(f"mark {mark['kind']}: use only texts and numbers: {error}") from error


def active_marks(marks: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return marks that were not undone."""
    ordered = sorted(marks, key=lambda mark: str(mark.get("id", "")))
    undone: set[str] = set()
    active = []
    for mark in reversed(ordered):  # an undone undo has no effect
        if mark.get("id") in undone:
            continue
        if mark.get("kind") == "undo":
            undone.add(str(mark.get("mark")))
        else:
            active.append(mark)
    return active[::-1]


def mark_columns(marks: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the columns that `apply_marks` reads."""
    columns: set[str] = set()
    for mark in marks:
        if mark.get("kind") == "rename":
            columns |= {"workload", "category", "params", "environment"}
        elif mark.get("kind") in ("bankruptcy", "exclude"):
            columns |= Selection.from_mark(mark).columns
    return columns


def check_matches(
    index: Index, mark: Mapping[str, Any], marks: Iterable[Mapping[str, Any]]
) -> None:
    """Raise if the names in a new mark match no run, neither as stored nor after renames."""
    where = dict(mark.get("where") or {})
    workload = mark.get("workload")
    if mark["kind"] == "rename" and mark["field"] == "environment":
        where["environment"] = mark["from"]
    elif mark["kind"] == "rename" and mark["field"] == "workload":
        workload = mark["from"]
    if mark["kind"] == "undo" or not (where or workload):
        return
    active = active_marks(marks)
    selection = Selection(workload=workload, where=where)
    stored = index.table({"workload"} | selection.columns | mark_columns(active))
    tables = [stored, apply_marks(stored, active)]
    if not stored.num_rows or any(matching(table, selection).any() for table in tables):
        return
    wanted = ", ".join(f"{name}={value}" for name, value in where.items())
    names = [str(name) for table in tables for name in table["workload"].unique().to_pylist()]
    names += [name.partition("[")[0] for name in names]
    hint = did_you_mean(str(workload), names, "see `benchkit list runs`")
    what = f"{workload!r} {wanted}".strip() if workload else wanted
    raise UsageError(f"mark {mark['kind']}: {what}: matches no runs: {hint}")


#: Errors of a mark that was written by hand or by a newer version: it must not hide all runs.
_INVALID = (UsageError, KeyError, TypeError, ValueError)


def _warn_skipped(mark: Mapping[str, Any], error: Exception) -> None:
    warnings.warn(f"mark {mark.get('id')}: skipped: {error}", stacklevel=3)


def apply_marks(table: pa.Table, marks: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return runs with names replaced and `MARK_COLUMNS` added."""
    comparable = np.ones(table.num_rows, bool)
    reasons, reason = [""], np.zeros(table.num_rows, np.int32)
    for mark in marks:
        try:
            if mark.get("kind") == "rename":
                table = _rename(table, mark)
            elif mark.get("kind") in ("bankruptcy", "exclude"):
                selected = matching(table, Selection.from_mark(mark))
                comparable &= ~selected
                reason[selected] = len(reasons)
                reasons.append(str(mark.get("reason") or mark["kind"]))
        except _INVALID as error:
            _warn_skipped(mark, error)
    added = (pa.array(comparable), decode_texts(reason, reasons))
    for name, column in zip(MARK_COLUMNS, added, strict=True):
        table = table.append_column(name, column)
    return table


def _rename(table: pa.Table, mark: Mapping[str, Any]) -> pa.Table:
    old, new = str(mark["from"]), str(mark["to"])
    if mark.get("field", "workload") == "environment":
        return _change(table, "environment", lambda name: new if name == old else name)
    if mark.get("field", "workload") == "parameter":
        selected = matching(table, Selection(workload=mark.get("workload")))
        table = _change(
            table,
            "workload",
            # In a variant's name a parameter is between "[" or "," and "=".
            lambda name: name.replace(f"[{old}=", f"[{new}=").replace(f",{old}=", f",{new}="),
            selected,
        )
        return _change(table, "params", lambda text: _rename_key(text, old, new), selected)

    def renamed(name: str) -> str:
        base, bracket, rest = name.partition("[")
        if name == old:
            return new
        return new + bracket + rest if base == old else name

    category = new.partition(".")[0]
    codes, names = encode_texts(table["workload"])
    changed = np.array([*(renamed(name) != name for name in names), False])[codes]
    table = _change(table, "workload", renamed)
    return _change(table, "category", lambda _: category, changed) if changed.any() else table


def _rename_key(text: str, old: str, new: str) -> str:
    return json.dumps({new if k == old else k: v for k, v in decode_json(text).items()})


def _change(
    table: pa.Table, name: str, change: Callable[[str], str], selected: np.ndarray | None = None
) -> pa.Table:
    """Return a table with changed texts in a column, in all or only the selected rows."""
    codes, texts = encode_texts(table[name])
    new = np.where(codes < 0, codes, codes + len(texts))
    codes = new if selected is None else np.where(selected, new, codes)
    index = table.column_names.index(name)
    column = decode_texts(codes, [*texts, *(change(text) for text in texts)])
    return table.set_column(index, name, column)
