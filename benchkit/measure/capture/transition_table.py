"""Hears of the end of tasks, and of nothing else, where a scheduler looks up what then to do.

A plugin is called at each of the five transitions in the life of a task, and those calls alone cost
more than all that a capture does with them. What a scheduler does at a transition it looks up in a
table of its class; a table of its own lies in front of that one while somebody listens.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Wrap", "is_supported", "ignores_the_rest", "listen", "stop_listening"]

#: What a task that was processing becomes when that is over.
_ENDS = ("memory", "erred", "released")

#: Takes the scheduler's own function and returns the one to be called in its place.
Wrap: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_TABLE = "_TRANSITIONS_TABLE"
#: On the scheduler: who listens, by name, for any number of clients may measure at once; and the
#: table that somebody else had laid there before.
_LISTENERS, _BEFORE = "benchkit_listeners", "benchkit_table_before"
#: What a task's end is told with; the same in all releases from 2023.4.1 on.
_TOLD = {"key", "stimulus_id", "nbytes", "type", "typename", "worker", "startstops"}


def is_supported(scheduler: Any) -> bool:
    """Return whether this release has the table, and tells of a task's end as we know it."""
    from distributed.scheduler import TaskState

    try:
        table = _beneath(scheduler)
        takes = inspect.signature(table["processing", "memory"]).parameters
        others = {name for name in takes if name not in _TOLD}
        return (
            takes.keys() >= _TOLD
            and others == {"self", "kwargs"}
            and all(("processing", end) in table for end in _ENDS)
            and vars(scheduler) is not None
            and hasattr(TaskState, "_state")  # asking for `state` takes a call
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def ignores_the_rest(function: Callable[..., Any]) -> bool:
    """Return whether a function for a task's end takes more words than it looks at.

    The scheduler's own takes the thread and more for the sake of plugins. To pass them costs half
    as much as all that is noted of a task.
    """
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters
        rest = {name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD}
        looks_at: set[Any] = set()
        for step in dis.get_instructions(function):  # since Python 3.13 one step may load two
            looks_at.update(step.argval if isinstance(step.argval, tuple) else (step.argval,))
    except (TypeError, ValueError):
        return False
    rest_is_used = rest & looks_at or "locals" in looks_at
    return bool(rest) and not rest_is_used and not {"thread", "metadata"} & parameters.keys()


def listen(scheduler: Any, name: str, wraps: dict[str, Wrap]) -> None:
    """Let functions stand in front of the scheduler's own for the end of a task.

    Parameters
    ----------
    scheduler : Scheduler
        One for which `is_supported` is true.
    name : str
        To stop by.
    wraps : dict
        For ``memory``, ``erred`` and ``released``: what makes of the scheduler's own function for a
        task that was processing the one to be called.
    """
    own = vars(scheduler)
    if _LISTENERS not in own:
        own[_LISTENERS], own[_BEFORE] = {}, own.get(_TABLE)
    own[_LISTENERS][name] = wraps
    _lay(scheduler)


def stop_listening(scheduler: Any, name: str) -> None:
    """Take the functions of a listener away; one who does not listen may stop, too."""
    if vars(scheduler).get(_LISTENERS, {}).pop(name, None) is not None:
        _lay(scheduler)


def _beneath(scheduler: Any) -> Any:
    """Return the table of the scheduler that is none of ours."""
    own = vars(scheduler)
    if _LISTENERS not in own:
        return getattr(scheduler, _TABLE)
    return getattr(type(scheduler), _TABLE) if own[_BEFORE] is None else own[_BEFORE]


def _lay(scheduler: Any) -> None:
    """Lay the table anew: the one that was there, and in front of it all who listen."""
    own, table = vars(scheduler), dict(_beneath(scheduler))
    if own[_LISTENERS]:
        for wraps in own[_LISTENERS].values():
            for end, wrap in wraps.items():
                table["processing", end] = wrap(table["processing", end])
        own[_TABLE] = table
        return
    del own[_LISTENERS], own[_TABLE]
    before = own.pop(_BEFORE)
    if before is not None:
        own[_TABLE] = before
