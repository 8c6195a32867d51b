"""Hears of the end of tasks, and of nothing else, where a scheduler looks up what then to do.

A plugin is called at each of the five transitions in the life of a task, and those calls alone cost
more than all that a capture does with them. What a scheduler does at a transition it looks up in a
table of its class; a table of its own lies in front of that one while somebody listens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Wrap", "can_listen", "listen", "stop_listening"]

#: What a task that was processing becomes when that is over.
_ENDS = ("memory", "erred", "released")

#: Takes the scheduler's own function and returns the one to be called in its place.
Wrap: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_TABLE = "_TRANSITIONS_TABLE"
#: On the scheduler: who listens, by name, for any number of clients may measure at once.
_LISTENERS = "benchkit_listeners"
#: What a task's end is told with; the same in all releases from 2023.4.1 on.
_TOLD = {"key", "stimulus_id", "nbytes", "type", "typename", "worker", "startstops"}


def can_listen(scheduler: Any) -> bool:
    """Return whether this release has the table, and tells of a task's end as we know it."""
    try:
        table = getattr(scheduler, _TABLE)
        takes = inspect.signature(table["processing", "memory"]).parameters
        others = {name for name in takes if name not in _TOLD}
        return (
            takes.keys() >= _TOLD
            and others == {"self", "kwargs"}
            and all(("processing", end) in table for end in _ENDS)
            and vars(scheduler) is not None
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def listen(scheduler: Any, name: str, wraps: dict[str, Wrap]) -> None:
    """Let functions stand in front of the scheduler's own for the end of a task.

    Parameters
    ----------
    scheduler : Scheduler
        One for which `can_listen` is true.
    name : str
        To stop by.
    wraps : dict
        For ``memory``, ``erred`` and ``released``: what makes of the scheduler's own function for a
        task that was processing the one to be called.
    """
    vars(scheduler).setdefault(_LISTENERS, {})[name] = wraps
    _lay(scheduler)


def stop_listening(scheduler: Any, name: str) -> None:
    """Take the functions of a listener away; one who does not listen may stop, too."""
    if vars(scheduler).get(_LISTENERS, {}).pop(name, None) is not None:
        _lay(scheduler)


def _lay(scheduler: Any) -> None:
    """Lay the table anew: the one of the class, and in front of it all who listen."""
    own = vars(scheduler)
    own.pop(_TABLE, None)
    if not own[_LISTENERS]:
        del own[_LISTENERS]
        return
    table = dict(getattr(scheduler, _TABLE))
    for wraps in own[_LISTENERS].values():
        for end, wrap in wraps.items():
            table["processing", end] = wrap(table["processing", end])
    own[_TABLE] = table
