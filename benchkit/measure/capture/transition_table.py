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

__all__ = ["Wrapper", "is_supported", "ignores_extra_arguments", "install", "remove"]

#: States that follow "processing" when a task ends.
_END_STATES = ("memory", "erred", "released")

#: Takes the scheduler's own function and returns the function to call in its place.
Wrapper: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_TABLE = "_TRANSITIONS_TABLE"
#: Attributes of the scheduler: the wrappers by capture name, because several clients may measure at
#: once; and the instance's own table that another tool had set before.
_WRAPPERS = "benchkit_listeners"
_TABLE_BEFORE = "benchkit_table_before"
#: Arguments of a task's end; the same in all releases from 2023.4.1 on.
_ARGUMENTS = {"key", "stimulus_id", "nbytes", "type", "typename", "worker", "startstops"}


def is_supported(scheduler: Any) -> bool:
    """Return whether this release has the table and calls its functions as expected."""
    from distributed.scheduler import TaskState

    try:
        table = _original_table(scheduler)
        parameters = inspect.signature(table["processing", "memory"]).parameters
        others = {name for name in parameters if name not in _ARGUMENTS}
        return (
            parameters.keys() >= _ARGUMENTS
            and others == {"self", "kwargs"}
            and all(("processing", end) in table for end in _END_STATES)
            and vars(scheduler) is not None
            and hasattr(TaskState, "_state")  # reading `state` costs a call
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def ignores_extra_arguments(function: Callable[..., Any]) -> bool:
    """Return whether a function for a task's end accepts more arguments than it uses.

    The scheduler's own function accepts the thread and more for plugins. Passing them costs half as
    much as recording a task.
    """
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters
        extra = {
            name
            for name, parameter in parameters.items()
            if parameter.kind is parameter.VAR_KEYWORD
        }
        used_names: set[Any] = set()
        for instruction in dis.get_instructions(function):  # Python 3.13: may load two names
            used_names.update(
                instruction.argval
                if isinstance(instruction.argval, tuple)
                else (instruction.argval,)
            )
    except (TypeError, ValueError):
        return False
    extra_is_used = extra & used_names or "locals" in used_names
    return bool(extra) and not extra_is_used and not {"thread", "metadata"} & parameters.keys()


def install(scheduler: Any, name: str, wrappers: dict[str, Wrapper]) -> None:
    """Wrap the scheduler's own functions for the end of a task.

    Parameters
    ----------
    scheduler : Scheduler
        A scheduler for which `is_supported` is true.
    name : str
        Name for `remove`.
    wrappers : dict
        By ``memory``, ``erred`` and ``released``: function that takes the scheduler's own function
        for a task that was processing, and returns the function to call in its place.
    """
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
