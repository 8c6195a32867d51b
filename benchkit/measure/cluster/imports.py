"""Import the module of a cluster class."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from types import ModuleType


def import_cluster_module(name: str) -> ModuleType:
    """Import a module; handlers of signals stay as they are.

    dask_jobqueue sets a handler of SIGINT when it is imported: Ctrl-C would then end a command with
    exit code 0 and without a message.
    """
    numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    handlers = {number: signal.getsignal(number) for number in numbers if number is not None}
    try:
        return import_module(name)
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                if handler is not None:  # None: not set from Python
                    signal.signal(number, handler)
