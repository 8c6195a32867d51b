"""Wrap the task-completion entries of `Scheduler._TRANSITIONS_TABLE`.

A plugin is called at each of the five transitions of a task, and those calls cost more than the
rest of the capture. The scheduler looks up what to do at a transition in a table of its class; an
instance attribute with wrapped entries hides that table while a capture is installed.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import distributed

#: States that follow "processing" when a task ends.
_END_STATES = ("memory", "erred", "released")

#: Takes the scheduler's own function and returns the function to call in its place.
Wrapper: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_TABLE = "_TRANSITIONS_TABLE"
#: Attributes of the scheduler: the wrappers by capture name, because several clients may measure at
#: once; and the instance's own table that another tool had set before.
_WRAPPERS = "benchkit_listeners"
_TABLE_BEFORE = "benchkit_table_before"
#: Parameters of the function for "processing" to "memory".
_PARAMETERS = {
    "self", "key", "stimulus_id", "nbytes", "type", "typename", "worker", "startstops", "kwargs",
}  # fmt: skip
#: Year and month of the first and last release whose function has these parameters and does not
#: use ``kwargs``: https://github.com/dask/distributed/blob/2026.7.1/distributed/scheduler.py,
#: `_transition_processing_memory` (`transition_processing_memory` before 2024.1.1).
_CHECKED_RELEASES = ((2023, 4), (2026, 8))


def is_supported(scheduler: Any) -> bool:
    """Return whether this release has the table and calls its functions as expected."""
    from distributed.scheduler import TaskState

    try:
        table = _original_table(scheduler)
        return (
            _PARAMETERS == inspect.signature(table["processing", "memory"]).parameters.keys()
            and all(("processing", end) in table for end in _END_STATES)
            and vars(scheduler) is not None
            and hasattr(TaskState, "_state")  # reading `state` costs a call
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def ignores_extra_arguments(function: Callable[..., Any]) -> bool:
    """Return whether a function for a task's end is distributed's own and ignores ``**kwargs``.

    The scheduler passes the thread and more to it for the plugins. Passing them on costs half as
    much as recording a task, so they are omitted where the source code of the release shows that
    the function does not use them. A newer release gets all arguments, with a warning.
    """
    is_own = getattr(function, "__module__", None) == "distributed.scheduler"
    if not is_own or hasattr(function, "__wrapped__"):  # a wrapper has the module of its function
        return False
    if inspect.signature(function).parameters.keys() != _PARAMETERS:
        return False
    first, last = _CHECKED_RELEASES
    release = getattr(distributed, "__version__", "of unknown release")
    match = re.match(r"(\d+)\.(\d+)", release)
    if match and first <= (int(match[1]), int(match[2])) <= last:
        return True
    warnings.warn(
        f"distributed {release} is not among the releases that benchkit was checked with; "
        "recording a task takes longer",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def install(scheduler: Any, name: str, wrappers: dict[str, Wrapper]) -> None:
    """Wrap the scheduler's own functions for the end of a task."""
    own = vars(scheduler)
    if _WRAPPERS not in own:
        own[_WRAPPERS], own[_TABLE_BEFORE] = {}, own.get(_TABLE)
    own[_WRAPPERS][name] = wrappers
    _rebuild(scheduler)


def remove(scheduler: Any, name: str) -> None:
    """Remove the wrappers of a capture; does nothing if none are installed."""
    if vars(scheduler).get(_WRAPPERS, {}).pop(name, None) is not None:
        _rebuild(scheduler)


def _original_table(scheduler: Any) -> Any:
    """Return the scheduler's table without the wrappers of any capture."""
    own = vars(scheduler)
    if _WRAPPERS not in own:
        return getattr(scheduler, _TABLE)
    return getattr(type(scheduler), _TABLE) if own[_TABLE_BEFORE] is None else own[_TABLE_BEFORE]


def _rebuild(scheduler: Any) -> None:
    """Rebuild the table: the original entries, wrapped by all installed wrappers."""
    own, table = vars(scheduler), dict(_original_table(scheduler))
    if own[_WRAPPERS]:
        for wrappers in own[_WRAPPERS].values():
            for end, wrapper in wrappers.items():
                table["processing", end] = wrapper(table["processing", end])
        own[_TABLE] = table
        return
    del own[_WRAPPERS], own[_TABLE]
    before = own.pop(_TABLE_BEFORE)
    if before is not None:
        own[_TABLE] = before
