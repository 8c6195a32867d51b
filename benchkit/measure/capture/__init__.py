"""The capture: a scheduler plugin and a worker probe that watch one run.

This package is sent by value to schedulers and workers that do not have benchkit, of any release of
distributed from 2023.4.1 on, so it imports the standard library and distributed only, and nothing
of ours but itself. It decides nothing: it appends to columns, which the client drains (`observe`).

Four rules keep it cheap and harmless. Level "light" takes no part in the life of a task: it looks
at the scheduler's own counters between times (`polling`). Level "full" keeps what a task ended with
as it comes (`transitions`), and makes columns of it a moment later (`stream`). What a release of
distributed does not tell is NaN. Nothing here may raise into the scheduler: what goes wrong is
noted and travels home with the data. And a client that is gone is noticed: the capture then removes
itself.

From below: `columns`, `loop_lag`; `knowledge` and `probe` on the workers; `groups`, `happenings`,
`transitions`, `stream`, `polling`, `samples`, `asking`, `ending` on the scheduler; `watching` holds
them together.
"""

from benchkit.measure.capture.columns import (
    ACTIONS,
    EVENT_COLUMNS,
    ROW,
    SAMPLE_COLUMNS,
    SCHEDULER_COLUMNS,
    TASK_COLUMNS,
)
from benchkit.measure.capture.scheduler_plugin import Capture
from benchkit.measure.capture.worker_plugin import Probe

__all__ = [
    "ACTIONS",
    "EVENT_COLUMNS",
    "ROW",
    "SAMPLE_COLUMNS",
    "SCHEDULER_COLUMNS",
    "TASK_COLUMNS",
    "Capture",
    "Probe",
]
