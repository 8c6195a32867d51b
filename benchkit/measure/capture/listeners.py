"""Call functions of captures before methods of the scheduler that clients and workers call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["listen", "stop_listening"]

#: Attribute of the scheduler: by method, the listeners by capture name, because several clients may
#: measure at once.
_LISTENERS = "benchkit_listeners_of_calls"
#: Entries of the scheduler's tables of handlers that lead to a method.
_HANDLERS = {
    "update_data": (("handlers", "update_data"), ("stream_handlers", "update-data")),
    "heartbeat_worker": (("handlers", "heartbeat_worker"),),
}


def listen(
    scheduler: Any, method: str, name: str, listener: Callable[[dict[str, Any]], None]
) -> None:
    """Call a listener before each call of a method, until `stop_listening`.

    Parameters
    ----------
    scheduler : Scheduler
        The scheduler.
    method : {"update_data", "heartbeat_worker"}
        Name of the method.
    name : str
        Name of the capture.
    listener : callable
        Its argument is the dict of the call's arguments. Its errors are ignored.
    """
    listeners = vars(scheduler).setdefault(_LISTENERS, {}).setdefault(method, {})
    listeners[name] = listener
    if len(listeners) > 1:
        return
    original = getattr(scheduler, method)

    def wrapped(*args: Any, **arguments: Any) -> Any:
        for each in list(listeners.values()):
            with suppress(Exception):
                each(arguments)
        return original(*args, **arguments)

    _replace(scheduler, method, wrapped)


def stop_listening(scheduler: Any, method: str, name: str) -> None:
    """Remove a listener; safe to call twice.

    Parameters
    ----------
    scheduler, method, name
        As for `listen`.
    """
    own = vars(scheduler)
    listeners = own.get(_LISTENERS, {}).get(method, {})
    if listeners.pop(name, None) is not None and not listeners:
        del own[_LISTENERS][method], own[method]
        _replace(scheduler, method, None)


def _replace(scheduler: Any, method: str, function: Callable[..., Any] | None) -> None:
    """Set a method and its handlers; None: the class's own method."""
    if function is not None:
        vars(scheduler)[method] = function
    for table, op in _HANDLERS[method]:
        handlers = getattr(scheduler, table, {})
        if op in handlers:
            handlers[op] = getattr(scheduler, method)
