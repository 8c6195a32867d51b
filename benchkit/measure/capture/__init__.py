"""The capture: a scheduler plugin and a worker plugin that record one run.

The package is sent by value to schedulers and workers without benchkit, of any release of
distributed from 2023.4.1 on. So it imports only the standard library, distributed and itself. It
analyses nothing: it appends to columns, which the client drains (`capture_client`).

Four rules keep it cheap and harmless. Level "light" is not called for tasks: it reads the
scheduler's own counters periodically (`poller`). Level "full" records each finished task
(`transition_table`) and converts the records to columns later (`task_stream`), and reads the
dependencies of tasks when a graph arrives (`task_graph`). A value that a release of distributed
does not have is NaN. No error is raised into the scheduler: errors are recorded and sent with the
data. A capture whose client is gone removes itself.
"""

from benchkit.measure.capture.scheduler_plugin import CapturePlugin
from benchkit.measure.capture.worker_plugin import CaptureWorkerPlugin

__all__ = ["CapturePlugin", "CaptureWorkerPlugin"]
