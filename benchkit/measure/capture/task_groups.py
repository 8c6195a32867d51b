"""The task groups of a run: who they are, what they held before, what ended in them."""

from __future__ import annotations

from typing import Any

from benchkit.measure.capture.columns import NAN, text

__all__ = ["Groups", "row_of"]


class Groups:
    """Numbers the task groups of a run in the order in which they were met.

    Sums of seconds and bytes are the scheduler's own, less what they were when the clock started;
    they stay exact when the stream is off or full.
    """

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.members: list[Any] = []
        self.before: list[tuple[dict, int]] = []
        #: Per group how many tasks ended, of those erred, and how often one was tried again.
        self.counts: list[list[int]] = []

    def number(self, group: Any) -> int:
        """Return the number of a group, a new one for a new group."""
        number = self.numbers.get(group)
        if number is None:
            number = self.numbers[group] = len(self.members)
            self.members.append(group)
            self.counts.append([0, 0, 0])
            self.before.append(({}, 0))
        return number

    def begin(self, groups: Any) -> None:
        """Take what the groups hold as what was before the run."""
        for group in groups:
            self.number(group)
        self.before = [_totals(group) for group in self.members]

    def seconds(self, number: int) -> dict[str, float]:
        """Return the seconds by action that a group added in this run."""
        before, _ = self.before[number]
        now, _ = _totals(self.members[number])
        return {action: value - before.get(action, 0.0) for action, value in now.items()}

    def names(self) -> list[str]:
        """Return the names alone, so that a stream without its last sums can be read."""
        return [text(group.name) for group in self.members]

    def rows(self, *, retries: bool = True) -> list[dict]:
        """Return a row per group; without `retries` nobody counted those, and none says 0."""
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


def row_of(
    name: str, seconds: dict[str, float], counts: list[int], *, retries: bool = True
) -> dict[str, Any]:
    """Return the row of a group of which no more is known than this."""
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
