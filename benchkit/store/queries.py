"""The part of a store that answers questions about the tasks of many runs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from benchkit.store.query.database import MEMORY_LIMIT, TIMEOUT_S, query, rows_of_runs
from benchkit.store.reader import StoreReader

__all__ = ["StoreQueries"]


class StoreQueries(StoreReader):
    """Queries over the tables of all runs.

    Parameters
    ----------
    path, create
        See `Store`.
    """

    def query(
        self,
        sql: str,
        *,
        timeout_s: float | None = TIMEOUT_S,
        memory_limit: str | None = MEMORY_LIMIT,
    ) -> pd.DataFrame:
        """Return the rows of a SELECT statement over all runs.

        Parameters
        ----------
        sql : str
            SQL of DuckDB over ``runs``, ``tasks``, ``task_groups``, ``transfers``, ``workers`` and
            ``events``; see `benchkit.store.query.tables.SCHEMAS`.
        timeout_s : float or None, default 120.0
            The statement is stopped after this time in s.
        memory_limit : str or None, default "2GiB"
            Memory that the statement may use, and that its rows may use.

        Returns
        -------
        DataFrame
            The rows.

        Raises
        ------
        UsageError
            The statement is wrong, changes something, or reached a limit, or DuckDB is not
            installed.

        Examples
        --------
        >>> store.query(
        ...     "select workload, prefix, median(duration) from tasks group by all"
        ... )  # doctest: +SKIP
        """
        return query(self, sql, timeout_s=timeout_s, memory_limit=memory_limit)

    def tasks(self, workload: str | None = None, **selection: Any) -> pd.DataFrame:
        """Return the tasks of several runs.

        Parameters
        ----------
        workload, **selection
            Arguments of `runs`.

        Returns
        -------
        DataFrame
            A row per task: run, workload, environment, task group, prefix, worker, thread, ok,
            nbytes (B), start and duration (s); those of a run by prefix and duration.
        """
        return rows_of_runs(self, "tasks", self.runs(workload, columns=["id"], **selection)["id"])

    def task_groups(self, workload: str | None = None, **selection: Any) -> pd.DataFrame:
        """Return the task groups of several runs.

        Parameters
        ----------
        workload, **selection
            Arguments of `runs`.

        Returns
        -------
        DataFrame
            A row per run and task group: number of tasks, bytes, and thread-seconds by activity.
        """
        ids = self.runs(workload, columns=["id"], **selection)["id"]
        return rows_of_runs(self, "task_groups", ids)
