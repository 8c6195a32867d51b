"""Wrap the task-completion entries of `Scheduler._TRANSITIONS_TABLE`.

A plugin is called at each of the five transitions of a task, and those calls cost more than the
rest of the capture. The scheduler looks up what to do at a transition in a table of its class; an
instance attribute with wrapped entries hides that table while a capture is installed.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Wrap", "is_supported", "ignores_the_rest", "listen", "stop_listening"]

#: States that follow "processing" when a task ends.
_ENDS = ("memory", "erred", "released")

#: Takes the scheduler's own function and returns the function to call in its place.
Wrap: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_TABLE = "_TRANSITIONS_TABLE"
#: Attributes of the scheduler: the wrappers by capture name, because several clients may measure at
#: once; and the instance's own table that another tool had set before.
_LISTENERS, _BEFORE = "benchkit_listeners", "benchkit_table_before"
#: Arguments of a task's end; the same in all releases from 2023.4.1 on.
_TOLD = {"key", "stimulus_id", "nbytes", "type", "typename", "worker", "startstops"}


def is_supported(scheduler: Any) -> bool:
    """Return whether this release has the table and calls its functions as expected."""
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
            and hasattr(TaskState, "_state")  # reading `state` costs a call
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def ignores_the_rest(function: Callable[..., Any]) -> bool:
    """Return whether a function for a task's end accepts more arguments than it uses.

    The scheduler's own function accepts the thread and more for plugins. Passing them costs half as
    much as recording a task.
    """
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters
        rest = {name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD}
        looks_at: set[Any] = set()
        for step in dis.get_instructions(function):  # since Python 3.13 one instruction may load two names
            looks_at.update(step.argval if isinstance(step.argval, tuple) else (step.argval,))
    except (TypeError, ValueError):
        return False
    rest_is_used = rest & looks_at or "locals" in looks_at
    return bool(rest) and not rest_is_used and not {"thread", "metadata"} & parameters.keys()


def listen(scheduler: Any, name: str, wraps: dict[str, Wrap]) -> None:
    """Wrap the scheduler's own functions for the end of a task.

    Parameters
    ----------
    scheduler : Scheduler
        A scheduler for which `is_supported` is true.
    name : str
        Name for `remove`.
    wraps : dict
        By ``memory``, ``erred`` and ``released``: function that takes the scheduler's own function
        for a task that was processing, and returns the function to call in its place.
    """
    own = vars(scheduler)
    if _LISTENERS not in own:
        own[_LISTENERS], own[_BEFORE] = {}, own.get(_TABLE)
    own[_LISTENERS][name] = wraps
    _lay(scheduler)


def stop_listening(scheduler: Any, name: str) -> None:
    """Remove the wrappers of a capture; does nothing if none are installed."""
    if vars(scheduler).get(_LISTENERS, {}).pop(name, None) is not None:
        _lay(scheduler)


def _beneath(scheduler: Any) -> Any:
    """Return the scheduler's table without the wrappers of any capture."""
    own = vars(scheduler)
    if _LISTENERS not in own:
        return getattr(scheduler, _TABLE)
    return getattr(type(scheduler), _TABLE) if own[_BEFORE] is None else own[_BEFORE]


def _lay(scheduler: Any) -> None:
    """Rebuild the table: the original entries, wrapped by all installed wrappers."""
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
