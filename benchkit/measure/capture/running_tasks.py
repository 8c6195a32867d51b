"""Tasks that run when the clock starts or stops, and tasks that leave their thread to wait.

The scheduler adds a task's whole duration to its group when the task ends. So the group's seconds
lack what still runs when the clock stops and contain what ran before it started, and the wait of a
task that seceded counts as computing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from benchkit.measure.capture.columns import NAN, text

_COMPUTE = "compute"
#: Attribute of the scheduler: the instances by capture name, because several clients may measure.
_INSTANCES = "benchkit_running_tasks"
_OP = "long-running"
#: Tasks of which the seconds before they seceded are kept.
MAX_SECEDED = 10_000


class RunningTasks:
    """Correct the seconds of task groups for tasks that run across the clock's edges."""

    def __init__(self, scheduler: Any, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.t_on = self.t_off = NAN
        #: By key: group, and seconds that the task had run when the clock started.
        self.carried_in: dict[Any, tuple[Any, float]] = {}
        #: By group: compute seconds that the scheduler had added when the clock stopped.
        self.at_off: dict[Any, float] = {}
        self.failed: set[Any] = set()
        self.n_unfinished = 0
        #: By key: group name, and seconds that the task computed before it seceded.
        self.seceded: dict[str, tuple[str, float]] = {}
        #: Tasks that seceded whose seconds are unknown, or of which there were too many to keep.
        self.n_seceded_unknown = 0
        #: Largest number of actors at a sample.
        self.n_actors = 0

    def start(self, t_on: float) -> None:
        """Note what runs when the clock starts; the workers have just sent a heartbeat."""
        self.t_on = t_on
        for task, seconds, seen in self._executing():
            self.carried_in[task.key] = (task.group, max(0.0, seconds + t_on - seen))
        instances = vars(self.scheduler).setdefault(_INSTANCES, {})
        instances[self.name] = self
        if len(instances) == 1:
            _wrap(self.scheduler, instances)

    def stop(self, t_off: float, groups: list[Any]) -> None:
        """Note the groups' sums and the unfinished tasks when the clock stops."""
        self.t_off = t_off
        self.at_off = {group: _compute_seconds(group) for group in groups}
        tasks = self.scheduler.tasks
        self.failed = {
            key for key in self.carried_in if key in tasks and tasks[key].state == "erred"
        }
        counts = dict.fromkeys(("waiting", "processing", "queued", "no-worker"), 0)
        for group in self.scheduler.task_groups.values():
            for state in counts:
                counts[state] += group.states.get(state, 0)
        self.n_unfinished = sum(counts.values())
        self.sample()
        self.remove()

    def sample(self) -> None:
        """Count the actors that are on the workers now."""
        n_actors = sum(len(state.actors) for state in self.scheduler.workers.values())
        self.n_actors = max(self.n_actors, n_actors)

    def remove(self) -> None:
        """Undo what `start` changed on the scheduler."""
        instances = vars(self.scheduler).get(_INSTANCES, {})
        if instances.pop(self.name, None) is not None and not instances:
            del vars(self.scheduler)[_INSTANCES]
            self.scheduler.stream_handlers[_OP] = self.scheduler.handle_long_running

    def corrections(self) -> dict[Any, float]:
        """Return corrections of the groups' compute time.

        Call it when the workers have sent a heartbeat after the clock stopped.
        """
        window = self.t_off - self.t_on
        added: dict[Any, float] = {}
        still_running = set()
        for task, seconds, seen in self._executing():
            inside = min(window, seconds - (seen - self.t_off))
            if inside > 0:
                still_running.add(task.key)
                added[task.group] = added.get(task.group, 0.0) + inside
        for group, seconds in self._ended_since(window).items():
            added[group] = added.get(group, 0.0) + seconds
        for key, (group, seconds) in self.carried_in.items():
            if key not in still_running and key not in self.failed:
                added[group] = added.get(group, 0.0) - seconds
        return added

    def _executing(self) -> list[tuple[Any, float, float]]:
        """Return tasks in a worker's threads, seconds so far, and the time of that heartbeat."""
        return [
            (task, seconds, state.last_seen)
            for state in self.scheduler.workers.values()
            for task, seconds in state.executing.items()
            if task not in state.long_running and not task.actor
        ]

    def _ended_since(self, window: float) -> dict[Any, float]:
        """Return compute seconds within the window of tasks that ended since the clock stopped."""
        seen = [state.last_seen for state in self.scheduler.workers.values()]
        n_threads = sum(state.nthreads for state in self.scheduler.workers.values())
        # Every thread may have computed from the stop of the clock to the heartbeat.
        spare = max(0.0, max(seen, default=self.t_off) - self.t_off) * n_threads
        out = {}
        for group, before in self.at_off.items():
            grown = _compute_seconds(group) - before
            if grown > spare:
                out[group] = min(grown - spare, n_threads * window)
        return out

    def state(self) -> dict[str, Any]:
        """Return the numbers of tasks that the groups' seconds do not describe."""
        return {
            "n_running_at_on": len(self.carried_in),
            "n_unfinished": self.n_unfinished,
            "n_actors": self.n_actors,
            "n_seceded_unknown": self.n_seceded_unknown,
            "seceded": [(key, *values) for key, values in self.seceded.items()],
        }

    def add_seceded(self, key: Any, compute_seconds: float | None) -> None:
        """Note that a task has left its thread."""
        # compute_seconds: Seconds that it computed before; None: unknown.
        task = self.scheduler.tasks.get(key)
        if task is None:
            return
        if compute_seconds is None or len(self.seceded) >= MAX_SECEDED:
            self.n_seceded_unknown += 1
        else:
            self.seceded[text(key)] = (text(task.group.name), float(compute_seconds))


def _compute_seconds(group: Any) -> float:
    return float(group.all_durations.get(_COMPUTE, 0.0))


def _wrap(scheduler: Any, instances: dict[str, RunningTasks]) -> None:
    original = scheduler.handle_long_running

    def handle_long_running(*args: Any, **arguments: Any) -> Any:
        for instance in list(instances.values()):
            with suppress(Exception):
                instance.add_seceded(arguments["key"], arguments.get("compute_duration"))
        return original(*args, **arguments)

    scheduler.stream_handlers[_OP] = handle_long_running
