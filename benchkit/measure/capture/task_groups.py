"""The task groups of a run: their numbers, their totals before the run, their task counts."""

from __future__ import annotations

from typing import Any

from benchkit.measure.capture.columns import NAN, text


class TaskGroups:
    """Number the task groups of a run in the order of their first use.

    Sums of seconds and bytes are the scheduler's own minus their values when the clock started;
    they stay exact when the stream is off or full.
    """

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.members: list[Any] = []
        self.before: list[tuple[dict[str, Any], int]] = []
        #: Per group: number of finished tasks, of failed tasks, and of retries.
        self.counts: list[list[int]] = []

    def number(self, group: Any) -> int:
        """Return the number of a group."""
        number = self.numbers.get(group)
        if number is None:
            number = self.numbers[group] = len(self.members)
            self.members.append(group)
            self.counts.append([0, 0, 0])
            self.before.append(({}, 0))
        return number

    def begin(self, groups: Any) -> None:
        """Store the current totals of the groups as the baseline of the run."""
        for group in groups:
            self.number(group)
        self.before = [_totals(group) for group in self.members]

    def seconds(self, number: int) -> dict[str, float]:
        """Return the seconds that the tasks of a group took in this run."""
        before, _ = self.before[number]
        now, _ = _totals(self.members[number])
        return {action: value - before.get(action, 0.0) for action, value in now.items()}

    def names(self) -> list[str]:
        """Return the names of the groups."""
        return [text(group.name) for group in self.members]

    def rows(self, *, retries: bool = True) -> list[dict[str, Any]]:
        """Return the sums of this run."""
        rows = []
        for number, (group, counts) in enumerate(zip(self.members, self.counts, strict=True)):
            rows.append(
                {
                    **row_of(text(group.name), self.seconds(number), counts, retries=retries),
                    "nbytes": group.nbytes_total - self.before[number][1],
                    "start": group.start or NAN,
                    "stop": group.stop or NAN,
                    "prefix": text(getattr(getattr(group, "prefix", None), "name", None) or ""),
                    "dependencies": sorted(text(other.name) for other in group.dependencies),
                    "span": getattr(group, "span_id", None) or "",
                }
            )
        return rows

    def correct(
        self, rows: list[dict[str, Any]], seconds: dict[Any, float], *, retries: bool
    ) -> None:
        """Add seconds to the compute time of groups."""
        for group, added in seconds.items():
            number = self.numbers.get(group)
            if number is None:
                row = row_of(text(group.name), {}, [0, 0, 0], retries=retries)
                rows.append({**row, "prefix": text(group.prefix.name)})
                number = -1
            durations = rows[number]["seconds"]
            durations["compute"] = max(0.0, durations.get("compute", 0.0) + added)


def row_of(
    name: str, seconds: dict[str, float], counts: list[int], *, retries: bool = True
) -> dict[str, Any]:
    """Return a row without the values that only a scheduler's own group has."""
    ended, erred, retried = counts
    return {
        "name": name,
        "seconds": seconds,
        "nbytes": 0,
        "n_tasks": ended,
        "n_erred": erred,
        "n_retried": retried if retries else None,
        "start": NAN,
        "stop": NAN,
        "prefix": name,
        "dependencies": [],
        "span": "",
    }


def _totals(group: Any) -> tuple[dict[str, float], int]:
    return dict(group.all_durations), group.nbytes_total
