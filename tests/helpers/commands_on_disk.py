"""Run commands of benchkit in forked processes on a disk with a fault.

One process imports benchkit; each command is a fork of it, because a start takes seconds.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

HELPERS = Path(__file__).parent
#: Seconds after which a command is interrupted as by Ctrl-C: the dashboard ends only by it.
INTERRUPT_AFTER_S = 200.0


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[Any]:
    """Yield a function that makes a folder full, read-only or inaccessible; undo it at the end.

    Root mounts a small disk in memory at the folder. Other users, and systems without mounts, limit
    the size of files to nothing, or change permissions.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    changed: list[Path] = []

    def make(condition: str, free_bytes: int = 0) -> dict[str, Any]:
        if condition == "full" and mounted:
            with open(folder / "other", "wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            os.truncate(folder / "other", (folder / "other").stat().st_size - free_bytes)
            return {}
        if condition == "full":
            return {"limit": True}
        if condition == "read-only" and mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            return {}
        for path in [*folder.rglob("*"), folder]:
            if path.is_dir():
                changed.append(path)
                path.chmod(0o500 if condition == "read-only" or path == folder else 0)
        return {"permissions": True}

    try:
        yield make
    finally:
        for path in reversed(changed):
            path.chmod(0o700)
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def run_commands(
    commands: dict[str, list[str]], folder: Path, limits: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return exit code, output, seconds and new files of each command.

    Parameters
    ----------
    commands : dict
        Name -> arguments.
    folder : Path
        The working folder, with a fault.
    limits : dict
        What `disk` returned: limits of each process.
    """
    request = {"commands": commands, "folder": str(folder), **limits}
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd="/",
        timeout=550,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _files(folder: Path) -> dict[str, str]:
    """Return the digest of each file that can be seen, without those of the fault itself."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "other"
    }


def _without_privileges() -> None:
    """Take from root, and from programs that it starts, the right to ignore permissions."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    for index in (0, 1):  # effective, permitted
        data[index] &= ~0b110
    libc.capset(header, data)


def _run(arguments: list[str], request: dict[str, Any], output: Path) -> None:
    """Run a command in this, a forked process."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(output / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setpgid(0, 0)
    folder = request["folder"]
    os.chdir(folder)
    os.environ.update(HOME=folder, XDG_CACHE_HOME=f"{folder}/cache", COLUMNS="200")
    if request.get("limit"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if request.get("permissions") and os.geteuid() == 0:
        _without_privileges()
    from benchkit.cli.main import benchkit

    benchkit(arguments, prog_name="benchkit")


def _run_and_exit(arguments: list[str], request: dict[str, Any], output: Path) -> None:
    code = 99
    try:
        _run(arguments, request, output)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 98
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Read a request from stdin and print the results."""
    import tempfile

    from tests.helpers.command_server import import_commands

    import_commands()
    request = json.load(sys.stdin)
    results: dict[str, Any] = {}
    folder = Path(request["folder"])
    for name, arguments in request["commands"].items():
        with tempfile.TemporaryDirectory() as text:
            output, before, start = Path(text), _files(folder), time.monotonic()
            child = os.fork()
            if not child:
                _run_and_exit(arguments, request, output)
            code = _wait(child, output / "stdout" if name == "dashboard" else None)
            results[name] = {
                "code": code,
                "seconds": time.monotonic() - start,
                "stdout": (output / "stdout").read_text(),
                "stderr": (output / "stderr").read_text(),
                "changed": sorted(dict(_files(folder).items() ^ before.items())),
            }
    print(json.dumps(results))


def _wait(child: int, address: Path | None) -> int:
    """Return the exit code of a command; interrupt a server that printed its address."""
    end = time.monotonic() + INTERRUPT_AFTER_S
    while time.monotonic() < end + 20:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if address is not None and address.exists() and address.stat().st_size:
            end, address = time.monotonic(), None
        if time.monotonic() > end:
            os.kill(child, signal.SIGINT)
            time.sleep(2)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -9


if __name__ == "__main__":
    sys.path[0] = str(HELPERS.parents[1])  # not this folder: its modules have common names
    main()
