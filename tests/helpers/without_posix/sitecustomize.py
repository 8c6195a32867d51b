"""Remove from this process and its children what Windows lacks, and hard links as on FAT."""

import builtins
import os
import signal
import sys

for module, names in {
    os: ("killpg", "getpgid", "setsid", "geteuid", "mkfifo", "getloadavg"),
    signal: ("SIGSTOP", "SIGCONT", "SIGHUP", "SIGALRM", "pthread_kill", "setitimer"),
}.items():
    for name in names:
        delattr(module, name)


def link_on_fat(*args, **kwargs):
    error = OSError(22, "Incorrect function")
    error.winerror = 1
    raise error


os.link = link_on_fat
_open, _import = builtins.open, builtins.__import__


def import_without_posix(name, globals=None, *args, **kwargs):
    if name in ("fcntl", "resource") and (globals or {}).get("__name__", "").startswith("benchkit"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _import(name, globals, *args, **kwargs)


def open_without_proc(file, *args, **kwargs):
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if str(file).startswith("/proc") and caller.startswith("benchkit"):
        raise FileNotFoundError(2, "No such file or directory", file)
    return _open(file, *args, **kwargs)


builtins.open, builtins.__import__ = open_without_proc, import_without_posix
