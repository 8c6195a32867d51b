"""What a capture knows about a run in addition to its tables."""

from __future__ import annotations

from dataclasses import dataclass

from benchkit.measure.recording import Recording

__all__ = ["CaptureFacts"]


@dataclass(frozen=True)
class CaptureFacts:
    """Facts that decide which metrics of a run are known.

    Parameters
    ----------
    full : bool
        Whether each task was recorded.
    n_running_at_on : int
        Tasks that ran when the clock started.
    n_unfinished : int
        Tasks still to do when the clock stopped.
    n_actors : int
        Actors on the workers; their calls are not tasks.
    n_seceded : int
        Tasks that left their thread while they waited.
    n_other_captures : int
        Other measurements on the same scheduler.
    clock_step_s : float
        Seconds by which the scheduler's clock was set during the run.
    """

    full: bool = True
    n_running_at_on: int = 0
    n_unfinished: int = 0
    n_actors: int = 0
    n_seceded: int = 0
    n_other_captures: int = 0
    clock_step_s: float = 0.0

    @classmethod
    def of(cls, recording: Recording) -> CaptureFacts:
        """Return the facts of a recording.

        Parameters
        ----------
        recording : Recording
            As read from disk.

        Returns
        -------
        CaptureFacts
            Defaults for what an older capture did not record.
        """
        state = recording.last("state", {})
        names = ("n_running_at_on", "n_unfinished", "n_actors", "n_other_captures")
        return cls(
            full=str(recording.head.get("capture", "full")).startswith("full"),
            n_seceded=len(state.get("seceded") or ()),
            clock_step_s=recording.tail.get("clock_step_s") or 0.0,
            **{name: int(state.get(name) or 0) for name in names},
        )
