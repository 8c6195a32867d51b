"""Convert the graphs that a client of another engine submitted to the tables of a recording."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import pack
from typing import Any, NamedTuple

from benchkit.measure.capture.columns import GRAPH_COLUMNS, NAN, pack_columns
from benchkit.measure.capture.task_graph import NO_ORDER

#: In a column of whole numbers: not known.
UNKNOWN = -1


class SubmittedTask(NamedTuple):
    """A task as the client submitted it."""

    key: str
    dependencies: Sequence[str]  # Keys
    order: int  # Its place in the order of the graph, which is its priority


@dataclass
class Submission:
    """Tasks that a client submitted together; Unix times in s of the scheduler's clock."""

    received: float  # When the scheduler received them
    started: float  # When it had handled them
    tasks: Sequence[SubmittedTask]
    wanted: Sequence[str]  # Keys of the results that the client gets
    options: Mapping[str, Any] = field(default_factory=dict)  # Of all its tasks, such as priority


class _Node(NamedTuple):
    number: int
    since: float  # Executions that begin before belong to an earlier node of the key


class Graph:
    """The nodes of submissions: a task that was computed, released and submitted again is two."""

    def __init__(
        self, submissions: Iterable[Submission], executions: Iterable[tuple[str, float]]
    ) -> None:
        # executions: key and begin of each execution of a task.
        self.keys: list[str] = []
        self.dependencies: list[Sequence[int]] = []
        self.orders: list[int] = []
        self.rows: list[tuple[float, float, int, int]] = []
        self.wanted: list[int] = []
        self.options: list[tuple[int, str]] = []
        self._nodes: dict[str, list[_Node]] = {}
        self._begins: dict[str, list[float]] = {}
        for key, begin in sorted(executions):
            self._begins.setdefault(key, []).append(begin)
        for each in sorted(submissions, key=lambda each: each.received):
            self._add(each)

    def _add(self, sent: Submission) -> None:
        first = len(self.keys)
        new = [task for task in sent.tasks if self._is_new(task.key, sent.received)]
        for task in new:
            self._append(task.key, sent.received, task.order)
        for number, task in enumerate(new, first):
            self.dependencies[number] = sorted(
                {self._newest(key) for key in task.dependencies if key != task.key}
            )
        if sent.options:
            text = json.dumps(dict(sent.options), default=str)
            self.options += [(number, text) for number in range(first, first + len(new))]
        wanted = [self._newest(key) for key in sent.wanted]
        self.wanted += wanted
        self.rows.append((sent.received, sent.started, first, len(wanted)))

    def _is_new(self, key: str, received: float) -> bool:
        """Return whether a submitted task is computed for this submission, not for an earlier one.

        A task that waits, or whose result is in memory, is not computed again.
        """
        known = self._nodes.get(key)
        if not known:
            return True
        begins = self._begins.get(key, [])
        place = bisect_left(begins, received)
        ran_before = self.orders[known[-1].number] == NO_ORDER or (
            place > bisect_left(begins, known[-1].since)
        )
        return ran_before and place < len(begins)

    def _append(self, key: str, since: float, order: int) -> int:
        number = len(self.keys)
        self.keys.append(key)
        self.dependencies.append(())
        self.orders.append(order)
        self._nodes.setdefault(key, []).append(_Node(number, since))
        return number

    def _newest(self, key: str) -> int:
        """Return the newest node of a key; data from before the clock started get one."""
        known = self._nodes.get(key)
        return known[-1].number if known else self._append(key, -float("inf"), NO_ORDER)

    def node_of(self, key: str, begin: float) -> int:
        """Return the node of an execution; -1: its task was not submitted by this client."""
        known = self._nodes.get(key)
        if not known:
            return UNKNOWN
        place = bisect_right(known, begin, key=lambda node: node.since) - 1
        return known[max(place, 0)].number  # the clocks of workers may differ by milliseconds

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the keys of each task and of each of its dependencies."""
        for key, dependencies in zip(self.keys, self.dependencies, strict=True):
            for number in dependencies:
                yield key, self.keys[number]

    def tables(self, group_number: Callable[[str], int], n_before: int = 0) -> dict[str, Any]:
        """Return the tables of the graph, after those of a graph with `n_before` nodes.

        `group_number` is that of the task group of a key.
        """
        nodes = (
            [group_number(key) for key in self.keys],
            [len(each) for each in self.dependencies],
            self.orders,
        )
        flat = [n_before + number for each in self.dependencies for number in each]
        wanted = [n_before + number for number in self.wanted]
        received, started, first, n_wanted = zip(*self.rows, strict=True)
        unknown = [NAN] * len(self.rows)
        begins, sizes = [n_before + number for number in first], [UNKNOWN] * len(self.rows)
        sent = (received, unknown, unknown, started, begins, n_wanted, sizes)
        return {
            "nodes": pack_columns(GRAPH_COLUMNS["nodes"], nodes),
            "submissions": pack_columns(GRAPH_COLUMNS["submissions"], sent),
            "dependencies": pack(f"{len(flat)}i", *flat),
            "wanted": pack(f"{len(wanted)}i", *wanted),
            "node_options": [(n_before + number, text) for number, text in self.options],
        }
