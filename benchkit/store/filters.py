"""Say which runs are meant: one `Selection`, whatever the spelling, and one Arrow expression.

``KEY:VALUE`` texts are parsed to keywords of `Store.runs`; these, and what a mark selects, are a
`Selection`. Each distinct text is tested once, which keeps 100 000 rows fast.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta, timezone
from fnmatch import fnmatchcase
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchkit.errors import InvalidSelectionError, NotEnoughRuns, UsageError, did_you_mean
from benchkit.formatting import OUTCOME_WORDS
from benchkit.store.arrow import encode_texts
from benchkit.store.index import Index
from benchkit.store.schema import RECORD_FIELDS
from benchkit.values import decode_json, split_at_commas

if TYPE_CHECKING:
    import pandas as pd

    from benchkit.store.store import Store


@dataclass(frozen=True)
class Key:
    """A key of a selection as text, such as ``env:main``."""

    argument: str  # Of `Store.runs`
    plural: str = ""  # What its values are, in messages
    by_beginning: bool = False  # Whether the beginning of a value is enough


#: Keys of a selection as text that have a value.
KEYS = {
    "env": Key("environment", "environments"),
    "environment": Key("environment", "environments"),
    "experiment": Key("experiment", "experiments", by_beginning=True),
    "arm": Key("arm", "arms"),
    "workload": Key("workload", "workloads"),
    "category": Key("category", "categories"),
    "host": Key("host", "hosts"),
    "dask": Key("dask", "releases of dask"),
    "distributed": Key("distributed", "releases of distributed"),
    "python": Key("python", "releases of Python"),
    "commit": Key("git_commit", "commits", by_beginning=True),
    "build": Key("packages_hash", "builds", by_beginning=True),
    "outcome": Key("outcome", "outcomes"),
    "since": Key("since"),
    "until": Key("until"),
}
#: Keys that have a name and a value, as in ``tag:variant=A`` -> columns with such pairs as JSON. A
#: filter whose name is no column is looked up in these.
PAIR_KEYS = {"tag": "tags", "param": "params"}

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
#: Characters of a time; pandas needs the square of the length.
_MAX_TIME_LENGTH = 100
_WILDCARD, _WILDCARD_OR_BRACKET = re.compile(r"[*?]"), re.compile(r"[*?\[]")
_JSON = tuple(name for name, kind in RECORD_FIELDS.items() if kind == "json")


def parse_moment(value: Any) -> datetime:
    """Return a time in UTC."""
    import pandas as pd

    now = datetime.now(timezone.utc)
    try:
        if isinstance(value, str):
            if len(value) > _MAX_TIME_LENGTH:
                raise _not_a_time(f"{value[:_MAX_TIME_LENGTH]}...")
            age = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", value.strip())
            if age:
                return now - timedelta(**{_UNITS[age[2]]: float(age[1])})
            value = pd.Timestamp(value.strip())
        if isinstance(value, timedelta):
            return now - value
        if isinstance(value, np.datetime64):
            value = pd.Timestamp(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime) and not pd.isna(value):
            moment = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
            return datetime.fromtimestamp(moment.timestamp(), timezone.utc)
    except (ValueError, OverflowError) as error:
        raise _not_a_time(value) from error
    raise _not_a_time(value)


def _not_a_time(value: Any) -> UsageError:
    return UsageError(
        f"{value!r} is not a time: use 2026-11-20, 2026-11-20T03:00, or an age such as 7d or 12h"
    )


def workload_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests whether a variant's name matches a pattern."""
    if _WILDCARD.search(pattern):
        return _glob(pattern)
    return lambda name: (
        name == pattern or ("[" not in pattern and name.partition("[")[0] == pattern)
    )


def _glob(pattern: str) -> Callable[[str], bool]:
    pattern = pattern.replace("[", "[[]")
    return lambda text: fnmatchcase(text, pattern)


@dataclass(frozen=True)
class Selection:
    """Which runs are meant; what is None selects all."""

    runs: Collection[str] | None = None  # Ids
    workload: str | Collection[str] | None = None  # A name or glob, or several
    # Field, tag or parameter -> value, glob, or a list of them; in files written by hand, anything
    where: Any = None
    since: Any = None  # First start: a time, or an age such as 7d
    before: Any = None  # Starts before this

    @classmethod
    def from_mark(cls, mark: Mapping[str, Any]) -> Selection:
        """Return the runs that a mark is about."""
        return cls(**{name: mark.get(name) for name in SELECTORS})

    @property
    def columns(self) -> set[str]:
        """Columns of the index that decide."""
        columns = {"id"} if self.runs is not None else set()
        columns |= {"workload"} if self.workload is not None else set()
        columns |= {"started"} if self.since is not None or self.before is not None else set()
        names = set(self.where) if isinstance(self.where, Mapping) else set()
        columns |= names
        return columns if names <= {*RECORD_FIELDS} else columns | {*PAIR_KEYS.values()}

    @property
    def patterns(self) -> list[str]:
        """Names and globs of workloads."""
        return [self.workload] if isinstance(self.workload, str) else list(self.workload or ())

    def time_conditions(self) -> Iterator[pc.Expression]:
        """Yield the conditions on the start."""
        started = pc.field("started")
        if self.since is not None:
            yield started >= pa.scalar(parse_moment(self.since))
        if self.before is not None:
            yield started < pa.scalar(parse_moment(self.before))


#: Names by which runs are selected in a mark.
SELECTORS = tuple(field.name for field in fields(Selection))


def row_condition(
    selection: Selection, marks: Iterable[Mapping[str, Any]] = ()
) -> pc.Expression | None:
    """Return a condition that all selected runs meet as they are stored, to read few row groups."""
    conditions = list(selection.time_conditions())
    if selection.workload is not None:
        patterns, ends = selection.patterns, _WILDCARD
        for mark in marks:
            if mark.get("kind") == "rename" and mark.get("field", "workload") == "workload":
                patterns.append(str(mark.get("from")))
            elif mark.get("kind") == "rename" and mark.get("field") == "parameter":
                ends = _WILDCARD_OR_BRACKET
        prefixes = [ends.split(pattern)[0] for pattern in patterns]
        field = pc.field("workload")
        ranges = [(field >= prefix) & (field <= f"{prefix}\U0010ffff") for prefix in prefixes]
        conditions.append(reduce(or_, ranges) if ranges else pc.scalar(False))
    return reduce(and_, conditions) if conditions else None


def matching(table: pa.Table, selection: Selection) -> np.ndarray:
    """Return a mask of the selected rows."""
    # returned: (n_rows,), true for rows that match.
    compiler = _Compiler(table)
    conditions = list(compiler.conditions(selection))
    if not conditions:
        return np.ones(table.num_rows, bool)
    import pyarrow.dataset as ds  # imports pandas

    dataset = ds.dataset(pa.table(compiler.columns))
    found = dataset.to_table(columns={"is_selected": reduce(and_, conditions)})["is_selected"]
    return np.asarray(pc.fill_null(found, False).to_numpy(), bool)


class _Compiler:
    """Compiles selections to expressions over columns of one table."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        #: Columns that the expressions read. Texts are their numbers in a dictionary: to compare
        #: a million takes 5 ms instead of 13.
        self.columns: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}

    def conditions(self, selection: Selection) -> Iterator[pc.Expression]:
        """Yield the conditions of a selection."""
        if selection.runs is not None:
            yield self._isin("id", list(selection.runs), pa.string())
        if selection.workload is not None:
            yield self._workload(selection.patterns)
        for condition in selection.time_conditions():
            self.columns["started"] = self.table["started"]
            yield condition
        where = selection.where or {}
        if not isinstance(where, Mapping):
            raise UsageError(
                f"where={where!r}: give a dict, such as where={{'environment': 'main'}}"
            )
        for name, wanted in where.items():
            yield from self._where(name, wanted)

    def _workload(self, patterns: Sequence[str]) -> pc.Expression:
        names = set(self._distinct("workload"))
        tests = [
            # A variant's name may contain a star: its own name is not a glob.
            pattern.__eq__ if "[" in pattern and pattern in names else workload_matcher(pattern)
            for pattern in patterns
        ]
        return self._like("workload", lambda name: any(test(name) for test in tests))

    def _where(self, name: str, wanted: Any) -> Iterator[pc.Expression]:
        if name in _JSON:
            if not isinstance(wanted, Mapping):
                example = f"{name}={{'key': 'value'}}"
                raise UsageError(f"{name}={wanted!r}: give a dict, such as {example}")
            for key, value in wanted.items():
                yield self._pair(name, key, _test(value))
        elif name not in self.table.column_names:
            test = _test(wanted)
            yield reduce(or_, [self._pair(column, name, test) for column in PAIR_KEYS.values()])
        else:
            yield self._value(name, wanted)

    def _value(self, name: str, wanted: Any) -> pc.Expression:
        kind = self.table[name].type
        if pa.types.is_timestamp(kind):
            raise UsageError(f"{name}={wanted!r}: filter times with since= and until=")
        if pa.types.is_string(kind) or pa.types.is_dictionary(kind):
            texts = [v if type(v) is str else _command_line_text(v) for v in _as_list(wanted)]
            if pa.types.is_string(kind) and not _WILDCARD.search("".join(texts)):
                return self._isin(name, texts, kind)  # many ids
            return self._like(name, _test(wanted))
        try:
            return self._isin(name, [float(value) for value in _as_list(wanted)], pa.float64())
        except (TypeError, ValueError) as error:
            what = "true or false" if pa.types.is_boolean(kind) else "a number"
            raise UsageError(f"{name}={wanted!r}: {name} is {what}") from error

    def _pair(self, column: str, key: str, test: Callable[[str], bool]) -> pc.Expression:
        def matches(text: str) -> bool:
            decoded = decode_json(text)
            if key not in decoded:
                return False
            value = decoded[key]  # JSON has lists only, also for tuples
            return test(_command_line_text(value)) or (
                isinstance(value, list) and test(str(tuple(value)))
            )

        return self._like(column, matches)

    def _isin(self, name: str, values: list[Any], kind: pa.DataType) -> pc.Expression:
        self.columns[name] = self.table[name]
        return pc.field(name).cast(kind).isin(pa.array(values, kind))

    def _like(self, name: str, test: Callable[[str], bool]) -> pc.Expression:
        texts = self._distinct(name)
        found = [number for number, text in enumerate(texts) if test(text)]
        return pc.field(f"number of {name}").isin(pa.array(found, pa.int32()))

    def _distinct(self, name: str) -> list[str]:
        if name not in self._texts:
            numbers, self._texts[name] = encode_texts(self.table[name])
            self.columns[f"number of {name}"] = numbers.astype(np.int32, copy=False)
        return self._texts[name]


def _test(wanted: Any) -> Callable[[str], bool]:
    tests = [
        _glob(text) if _WILDCARD.search(text) else text.__eq__
        for text in map(_command_line_text, _as_list(wanted))
    ]
    return lambda text: any(test(text) for test in tests)


def _as_list(wanted: Any) -> list[Any]:
    import pandas as pd

    collections = (list, tuple, set, frozenset, np.ndarray, pd.Series, pd.Index)
    return list(wanted) if isinstance(wanted, collections) else [wanted]


def _command_line_text(value: Any) -> str:
    """Return a tag's value as it is written on a command line."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


# -- selections as text ---------------------------------------------------------------------------


def parse_selection(text: str) -> dict[str, Any]:
    """Return a selection as arguments of `Store.runs`.

    Examples
    --------
    >>> parse_selection("env:main,tag:variant=A,since:7d")
    {'environment': 'main', 'tags': {'variant': 'A'}, 'since': '7d'}
    """
    filters: dict[str, Any] = {}
    for part in _parts(text):
        key, colon, value = (word.strip() for word in part.partition(":"))
        if not colon or not value:
            raise InvalidSelectionError(
                f"selection {text!r}: {part!r} must be KEY:VALUE, as in env:main"
            )
        target = filters
        if key in PAIR_KEYS:
            name, equals, value = value.partition("=")
            if not equals:
                raise InvalidSelectionError(
                    f"selection {text!r}: {part!r} must be {key}:NAME=VALUE"
                )
            target = filters.setdefault(PAIR_KEYS[key], {})
        elif key in KEYS:
            name = KEYS[key].argument
        else:
            known = [*KEYS, *PAIR_KEYS]
            hint = did_you_mean(key, known, f"use {', '.join(known)}")
            raise InvalidSelectionError(f"selection {text!r}: unknown key {key!r}: {hint}")
        if name in target:
            raise InvalidSelectionError(f"selection {text!r}: {name} is given twice")
        target[name] = value
    return filters


def _parts(text: str) -> list[str]:
    """Split at commas, except those in a value: in brackets, or without a key after them."""
    parts: list[list[str]] = []
    pairs = tuple(f"{key}:" for key in PAIR_KEYS)
    for part in split_at_commas(text):
        key, colon, _ = part.partition(":")
        is_part = bool(colon) and key.strip() in (*KEYS, *PAIR_KEYS)
        in_pair = parts and parts[-1][0].startswith(pairs)
        if parts and not is_part and (in_pair or not colon):
            parts[-1].append(part)
        else:
            parts.append([part])
    return [",".join(part) for part in parts]


# -- names that a user gives -----------------------------------------------------------------------


def check_names(table: pa.Table, filters: Mapping[str, Any], fields: Collection[str]) -> None:
    """Check that each filter is a field, or a tag or parameter of at least one run.

    A value of `outcome` must be a possible one.
    """
    if not table.num_rows:
        return
    outcomes = filters.get("outcome")
    for value in [outcomes] if isinstance(outcomes, str) else outcomes or ():
        if isinstance(value, str) and not _WILDCARD.search(value) and value not in OUTCOME_WORDS:
            hint = did_you_mean(value, OUTCOME_WORDS, f"outcomes are {', '.join(OUTCOME_WORDS)}")
            raise UsageError(f"no outcome named {value!r}: {hint}")
    others = [name for name in filters if name not in fields]
    tags, params = PAIR_KEYS.values()
    for columns, names, noun in (
        ((tags, params), others, "field, tag or parameter"),
        ((tags,), _names(filters, tags), "tag"),
        ((params,), _names(filters, params), "parameter"),
    ):
        keys = {key for column in columns for key in _keys(table[column])} if names else set()
        for name in names:
            if name not in keys:
                known = [*fields, *keys] if names is others else keys
                shown = ", ".join(sorted(keys)[:8]) or "none"
                hint = did_you_mean(name, known, f"{noun.rpartition(' ')[2]}s here: {shown}")
                raise UsageError(f"{name!r} is not a {noun} of these runs: {hint}")


def _names(filters: Mapping[str, Any], column: str) -> list[str]:
    wanted = filters.get(column)
    return list(wanted) if isinstance(wanted, Mapping) else []


def _keys(column: pa.ChunkedArray) -> set[str]:
    return {key for text in encode_texts(column)[1] for key in decode_json(text)}


def warn_of_unknown_workloads(index: Index, patterns: Sequence[str]) -> None:
    """Warn of names and globs that match no workload and are near to one that exists."""
    table = index.select({"workload"}, lambda table: (table, None, {"workload"}))
    names = set(encode_texts(table["workload"])[1])
    bases = {name.partition("[")[0] for name in names}
    known = sorted(names | bases | {f"{base.partition('.')[0]}.*" for base in bases})
    for pattern in patterns:
        hint = did_you_mean(pattern, known, "")
        if hint and pattern not in known:
            warnings.warn(f"no run of {pattern!r}: {hint}", stacklevel=4)


# -- runs that texts select ------------------------------------------------------------------------


def select_runs(store: Store, text: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the selected runs, oldest first."""
    filters = parse_selection(text) if text else {}
    if filters.get("experiment") == "latest":
        experiments = store.runs(columns=["experiment", "started"])["experiment"].dropna()
        filters["experiment"] = str(experiments.iloc[-1]) if len(experiments) else "none"
    for name in {key.argument for key in KEYS.values() if key.by_beginning} & filters.keys():
        if "*" not in filters[name]:
            filters[name] += "*"
    runs = store.runs(**filters, columns=columns)
    reason = explain_no_runs(store, filters) if runs.empty else ""
    if reason:
        raise NotEnoughRuns(reason)
    return runs


def select_sets(store: Store, texts: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the runs of several selections, to be compared workload by workload."""
    names = {name for text in texts for name in parse_selection(text).get(PAIR_KEYS["param"], {})}
    sets = {text: select_runs(store, text) for text in texts}
    names = names.union(*map(_swept_parameters, sets.values()))
    return {text: _without_parameters(runs, names) for text, runs in sets.items()}


def pair_workloads(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of an experiment, whose arms may differ in parameters of the workloads."""
    return _without_parameters(runs, _swept_parameters(runs))


def _swept_parameters(runs: pd.DataFrame) -> set[str]:
    if not {"arm", "params"} <= set(runs):
        return set()
    swept: set[str] = set()
    other: set[str] = set()
    for arm, text in set(zip(runs["arm"].fillna(""), runs["params"], strict=True)):
        point = dict(part.split("=", 1) for part in split_at_commas(arm) if "=" in part)
        for name, value in decode_json(text).items():
            if name in point:
                (swept if point[name] == str(value) else other).add(name)
    # An arm of a swept setting, such as n_workers, runs all values of a parameter of that name.
    return swept - other


def _without_parameters(runs: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    if not names or runs.empty:
        return runs
    workloads = []
    for workload, text in zip(runs["workload"], runs["params"], strict=True):
        params = decode_json(text)
        inside = ",".join(f"{k}={v}" for k, v in params.items() if k not in names)
        base = str(workload).partition("[")[0] if set(names) & set(params) else workload
        workloads.append(f"{base}[{inside}]" if inside and base != workload else base)
    return runs.assign(workload=workloads)


def explain_no_runs(store: Store, filters: Mapping[str, Any]) -> str:
    """Return which filter matches no run by itself, with the values that exist."""
    single = [
        (name, key, value)
        for name, wanted in filters.items()
        if name not in ("since", "until") and wanted is not None
        for key, value in (wanted.items() if isinstance(wanted, Mapping) else [("", wanted)])
    ]
    words = {key.argument: word for word, key in reversed(KEYS.items())}
    pairs = {column: word for word, column in PAIR_KEYS.items()}
    for name, key, value in single if len(store) else ():
        alone: dict[str, Any] = {name: {key: value} if key else value}
        if len(store.runs(columns=["id"], **alone)):
            continue
        column = store.runs(columns=[name])[name].dropna()
        values = [decode_json(item).get(key) for item in column] if key else list(column)
        known = list(dict.fromkeys(str(item) for item in values if item is not None))
        word, value = pairs[name] if key else words[name], str(value)
        what = f"{word}:{key}={value}" if key else f"{word}:{value.removesuffix('*')}"
        noun = f"values of {key}" if key else KEYS[word].plural
        more = f" and {len(known) - 8} more" if len(known) > 8 else ""
        hint = did_you_mean(value, known, "")
        shown = hint or f"{noun} here: {', '.join(known[-8:]) or 'none'}{more}"
        return f"{what} matches no runs{': ' if hint else '; '}{shown}"
    return ""
