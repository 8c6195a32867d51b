"""The tools of `benchkit mcp`: read-only questions to a store, answered as the commands do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from benchkit.values import json_safe

#: Fields of a run in a list.
_LISTED = (
    "id",
    "started",
    "workload",
    "environment",
    "outcome",
    "simulated",
    "duration",
    "memory_peak",
    "experiment",
    "arm",
    "tags",
    "error",
)
#: Fields of a row of a comparison.
_COMPARED = (
    "workload",
    "group",
    "metric",
    "unit",
    "baseline",
    "contender_value",
    "ratio",
    "low",
    "high",
    "verdict",
    "worse",
    "cause",
    "needed",
    "n_baseline",
    "n_contender",
    "n_failed_baseline",
    "n_failed_contender",
)
#: Rows that a query returns at most; more do not fit into an answer.
_MAX_ROWS = 500


class StoreTools:
    """Questions to a store; the docstring of each method is what an agent reads.

    Parameters
    ----------
    store : str or None
        Address of the store, as for ``--store``.
    **limits
        Limits of a query: ``timeout_s`` and ``memory_limit``.
    """

    def __init__(self, store: str | None, **limits: Any) -> None:
        self.address, self._query_limits = store, limits
        self._store()  # raises an error if there is none

    def _store(self) -> Any:
        """Open the store: each answer contains the runs that were added meanwhile."""
        from benchkit.store.store import Store

        return Store(self.address, create=False)

    def by_name(self) -> dict[str, Callable[..., str]]:
        """Return the tools.

        Returns
        -------
        dict of str to callable
            Method by name of the tool.
        """
        return {
            "list": self.list_rows,
            "run": self.run,
            "compare": self.compare,
            "regressions": self.regressions,
            "diagnose": self.diagnose,
            "limits": self.limits,
            "query": self.query,
        }

    def list_rows(
        self,
        what: Literal["runs", "noise", "metrics"] = "runs",
        selection: str = "",
        last: int = 20,
    ) -> str:
        """List runs (the newest first), the noise of each workload, or the metrics.

        Parameters
        ----------
        what : {"runs", "noise", "metrics"}
            ``noise`` has a row per workload: number of runs, usual duration (s), noise, and runs
            needed to detect a change of 2, 5 and 10 % (-1: over 1000). ``metrics`` has the name,
            unit and meaning of each metric.
        selection : str
            Of runs: ``KEY:VALUE`` separated by commas, with the keys env, tag (``tag:K=V``), param
            (``param:P=V``), experiment (``latest`` or an id), arm, workload (a glob), category,
            host, dask, distributed, python, commit, build, outcome, since and until (``7d`` or a
            date).
            Empty: all.
        last : int
            Number of runs to list.

        Returns
        -------
        str
            JSON; durations in s, memory in B.
        """
        from benchkit.cli.list import metric_rows
        from benchkit.cli.rows import as_records
        from benchkit.experiment.run.estimate import noise_table
        from benchkit.store.filters import select_runs

        if what == "metrics":
            rows = metric_rows(self._store())
            return as_answer({"metrics": rows}, narrow="`benchkit list metrics` has all.")
        store = self._store()
        columns = _LISTED if what == "runs" else None
        runs = select_runs(store, selection, columns=columns)
        if what == "noise":
            rows = as_records(noise_table(runs))
            return as_answer({"workloads": rows}, narrow="Select with workload:GLOB.")
        shown = as_records(runs.tail(max(last, 0)))[::-1]
        return as_answer(
            {"runs": shown},
            totals={"runs": str(len(runs))},
            narrow="Select with workload:GLOB, env:NAME, outcome:NAME or since:7d, or use query.",
        )

    def run(self, run: str = "latest") -> str:
        """Return all about one run: its fields and metrics, problems, limits of the measurement.

        Parameters
        ----------
        run : str
            Id, its first characters, or ``latest``.

        Returns
        -------
        str
            JSON with the sections record, problems, quality, task_groups (the longest first).
        """
        from benchkit.cli.rows import as_records
        from benchkit.store.schema import RECORD_FIELDS
        from benchkit.values import decode_json

        opened = self._store().open(run)
        record = {
            name: decode_json(value) if RECORD_FIELDS.get(name) == "json" else value
            for name, value in opened.record.items()
        }
        groups = opened.task_groups().reset_index(names="task_group")
        return as_answer(
            {
                "record": [record],
                "problems": as_records(opened.problems()),
                "quality": as_records(opened.quality()),
                "task_groups": as_records(groups.head(10)),
            },
            totals={"task_groups": str(len(groups))},
            narrow=f"Use query on tasks, task_groups or events with run = '{opened.id}'.",
        )

    def compare(
        self,
        baseline: str,
        contender: str,
        metrics: list[str] | None = None,
        all_rows: bool = False,
    ) -> str:
        """Compare two sets of runs, with confidence intervals and a verdict per metric.

        Parameters
        ----------
        baseline, contender : str
            Selections of runs, as for the tool list: ``env:main,since:7d`` or ``tag:variant=A``.
        metrics : list of str, optional
            Names of metrics; the important ones by default.
        all_rows : bool
            Also rows with the verdict ``same``.

        Returns
        -------
        str
            JSON; ``ratio`` is that of contender to baseline, ``low`` to ``high`` its interval,
            ``cause`` what moved in a changed row, ``needed`` the further runs for a verdict. Rows
            with a ``group`` are changed task groups, or a whole run if it is empty.
        """
        from benchkit.cli.compare import compare_selections

        comparison = compare_selections(self._store(), baseline, [contender], metrics=metrics or ())
        records = comparison.to_records()
        shown = [
            {name: row.get(name) for name in _COMPARED}
            for row in records
            if all_rows or row["verdict"] != "same"
        ]
        return as_answer(
            {"conclusion": [comparison.sentence], "warnings": comparison.warnings, "rows": shown},
            totals={"rows": str(len(records))},
            narrow="The others are the same; all_rows lists them."
            if len(shown) < len(records)
            else "Select one workload with workload:NAME, or fewer metrics.",
        )

    def regressions(
        self, since: str | None = None, states: list[str] | None = None, only_open: bool = True
    ) -> str:
        """List regressions of the nightly series, the last seen first.

        Parameters
        ----------
        since : str, optional
            Seen since this date or age, such as ``30d``.
        states : list of str, optional
            open, grown, recovered, accepted, ended.
        only_open : bool
            Only regressions that are still present.

        Returns
        -------
        str
            JSON with workload, metric, size, night, explanation and command to bisect.
        """
        from benchkit.cli.regressions import select_regressions

        selected = select_regressions(
            self._store(), since=since, states=states or (), only_open=only_open
        )
        rows = [regression.to_dict() for regression in selected]
        return as_answer({"regressions": rows}, narrow="Ask with since, such as since='7d'.")

    def diagnose(self, runs: str = "latest") -> str:
        """Say what makes runs slower than they have to be, and what to change.

        Parameters
        ----------
        runs : str
            Id of a run, its first characters, ``latest``, or a selection as for the tool list.

        Returns
        -------
        str
            JSON; a row per finding with its cost in s, evidence and change.
        """
        from benchkit.cli.insight.diagnose import diagnose_runs

        found = diagnose_runs(self._store(), runs)
        lines = [" ".join([*diagnosis.conclusion, diagnosis.sentence]) for diagnosis in found]
        rows = [row for diagnosis in found for row in diagnosis.to_records()]
        return as_answer({"conclusions": lines, "findings": rows}, narrow="Ask for one run.")

    def limits(self, run: str = "latest") -> str:
        """Return lower bounds of the duration of a run, and where its wall time went by cause.

        Parameters
        ----------
        run : str
            Id, its first characters, or ``latest``.

        Returns
        -------
        str
            JSON; rows of the kinds bound, cause and path (critical path), in s.
        """
        limits = self._store().open(run).limits()
        return as_answer(
            {"conclusion": limits.sentences, "rows": limits.to_records()},
            narrow="The rest of the critical path is in `run.limits()`.",
        )

    def query(self, sql: str) -> str:
        """Ask all runs by one SELECT statement of DuckDB's SQL.

        Tables: runs (id, workload, environment, outcome, started, duration, ...), tasks,
        task_groups, transfers, workers and events, which have a column run. Times in s, sizes in
        B. ``select * from tasks limit 1`` shows the columns.

        Parameters
        ----------
        sql : str
            The statement; it can change nothing and read no other file, and is stopped when it
            takes too long or too much memory.

        Returns
        -------
        str
            JSON with the rows.
        """
        from benchkit.store.query import query

        frame = query(self._store(), sql, limit=_MAX_ROWS + 1, **self._query_limits)
        rows = frame.to_dict("records")
        more = len(rows) > _MAX_ROWS
        return as_answer(
            {"problems": frame.attrs["problems"], "rows": rows[:_MAX_ROWS]},
            totals={"rows": f"more than {_MAX_ROWS}"} if more else None,
            narrow="Aggregate with group by, add a where or a limit, or select fewer columns.",
        )


#: Largest size of an answer, in B: it fills the context of a model.
MAX_BYTES = 10_000
#: Bytes for the note and the names of the sections.
_FOR_NOTE = 900
#: Longer texts and lists are cut: tracebacks, names of tasks.
_MAX_CHARACTERS, _MAX_ITEMS = 500, 20


def as_answer(
    sections: Mapping[str, Sequence[Any]],
    *,
    narrow: str,
    totals: Mapping[str, str] | None = None,
) -> str:
    """Return rows as the JSON text of an answer.

    Examples
    --------
    >>> as_answer({"rows": [{"a": 1, "b": None}]}, narrow="Select fewer rows.")
    '{"untrusted":{"rows":[{"a":1}]}}'
    """
    room = MAX_BYTES - _FOR_NOTE
    shown: dict[str, list[Any]] = {}
    left_out = []
    for name, rows in sections.items():
        shown[name] = []
        for row in rows:
            part = _fitting(_shorten(row), room) if not shown[name] else _shorten(row)
            size = len(_dump(part)) + 1
            if size > room:
                break
            room -= size
            shown[name].append(part)
        total = (totals or {}).get(name, str(len(rows)))
        if total != str(len(shown[name])):
            left_out.append(f"{len(shown[name])} of {total} {name}")
        elif rows and shown[name][0] != _shorten(rows[0]):
            left_out.append(f"a part of the fields of {name}")
    note = {"note": f"Shown: {', '.join(left_out)}. {narrow}"} if left_out else {}
    return _dump({**note, "untrusted": shown})


def _dump(value: Any) -> str:
    # ASCII: no invisible characters and no change of the direction of text.
    return json.dumps(value, separators=(",", ":"), default=str)


def _fitting(row: Any, room: int) -> Any:
    """Return the first fields of a row that fit, if it is too long for an answer of its own."""
    if not isinstance(row, dict) or len(_dump(row)) < room:
        return row
    part: dict[str, Any] = {}
    for name, value in row.items():
        if len(_dump({**part, name: value})) < room:
            part[name] = value
    return part


def _shorten(value: Any) -> Any:
    """Return a value with short texts and lists, and numbers of six digits."""
    value = json_safe(value)
    if isinstance(value, dict):
        return {
            _shorten(name): _shorten(item)
            for name, item in value.items()
            if item is not None and item not in ("", [], {})
        }
    if isinstance(value, list):
        more = len(value) - _MAX_ITEMS
        items = [_shorten(item) for item in value[:_MAX_ITEMS]]
        return [*items, f"... {more} more"] if more > 0 else items
    if isinstance(value, str) and len(value) > _MAX_CHARACTERS:
        return f"{value[:_MAX_CHARACTERS]}... {len(value) - _MAX_CHARACTERS} more characters"
    return float(f"{value:.6g}") if isinstance(value, float) else value
