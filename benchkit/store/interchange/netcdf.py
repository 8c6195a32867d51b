"""Import NetCDF files of runs that do not end with a digest: of early stores and of other programs.

Damage can make HDF5 loop in C code, and a file of 2 MB can hold gigabytes of zeros, so another
process with limits of CPU time and memory reads such files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import xarray as xr

from benchkit.errors import InvalidImportError, UnreadableRun
from benchkit.store.interchange.coiled import ImportReport
from benchkit.store.runfile import check_size, encode_run, open_run
from benchkit.store.storage import is_whole
from benchkit.store.store import Store
from benchkit.whole_file import drafted

#: CPU seconds to read one file of up to 10 MB; larger files get more in proportion.
MAX_CPU_S = 10
#: Seconds of wall time for each CPU second: the machine may be busy.
_WALL_PER_CPU = 12
#: Bytes of memory of the other process.
_MAX_MEMORY = 4 * 2**30
#: Files that one process reads: its start takes a second.
_BATCH_FILES = 50


def import_netcdf(
    store: Store, path: str | Path, *, progress: Callable[[int, int], None] | None = None
) -> ImportReport:
    """Add the runs of a NetCDF file, or the runs and marks of another store, to a store."""
    path = Path(path)
    paths = sorted(path.glob("runs/*/*.nc")) if path.is_dir() else [path]
    report = ImportReport(len(paths))
    foreign = []
    for item in paths:
        try:
            if not is_whole(read_file(item)):
                foreign.append(item)
        except InvalidImportError as error:
            report.odd.append(str(error))

    def trees() -> Iterator[xr.DataTree]:
        for position, tree in enumerate(_read_all(foreign), 1):
            if isinstance(tree, str):
                report.odd.append(tree)
            else:
                yield tree
            if progress is not None:
                progress(position, len(paths))

    report.added = store.add_many(trees())
    if path.is_dir():
        try:
            report.added += Store(path, create=False).copy(store)
        except UnreadableRun as error:
            report.odd.append(str(error))
    elif not foreign and not report.odd:
        report.added += store.add_many([open_run(path)])
    if not path.is_dir() and report.odd:
        raise InvalidImportError(report.odd[0])
    return report


def read_file(path: Path) -> bytes:
    """Return the bytes of a file."""
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise InvalidImportError(f"{path}: not a file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidImportError(f"{path}: cannot be read: {error.strerror}") from error


def _read_all(paths: Sequence[Path]) -> Iterator[xr.DataTree | str]:
    """Yield the tree of each file, or a line that says why there is none."""
    from benchkit.private_folder import private_folder  # not in the other process

    pending = list(paths)
    while pending:
        batch = pending[:_BATCH_FILES]
        with private_folder() as folder:
            reason = _run_reader(batch, folder)
            written = [Path(folder, f"{number}.nc") for number in range(len(batch))]
            n_read = sum(file.exists() for file in written)
            yield from (open_run(file).load() for file in written[:n_read])
        if n_read < len(batch):
            yield f"{batch[n_read]}: damaged run file: {reason}"
            n_read += 1
        del pending[:n_read]


def _run_reader(paths: Sequence[Path], folder: str) -> str:
    """Start the process that reads files into a folder; return why it ended before the last."""
    from benchkit.captured_process import run_captured  # not in the other process

    command = [sys.executable, "-m", __name__, folder, *(str(path.absolute()) for path in paths)]
    limit = f"HDF5 needs more than {MAX_CPU_S} s of CPU or {_MAX_MEMORY // 2**30} GiB of memory"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # threads reserve memory
    wall_s = _WALL_PER_CPU * sum(map(_cpu_limit, paths))
    try:
        done = run_captured(command, timeout=wall_s, env=environment)
    except subprocess.TimeoutExpired:
        return limit
    return done.stdout.strip() or (limit if done.returncode else "")


def _cpu_limit(path: Path) -> int:
    return max(MAX_CPU_S, round(MAX_CPU_S * path.stat().st_size / 1e7))


# -- in the other process -------------------------------------------------------------------------


def _main(folder: str, paths: Sequence[str]) -> None:
    """Write each file anew, with its digest; print what is wrong with one and end."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number, path in enumerate(map(Path, paths)):
        _limit_cpu(_cpu_limit(path))
        try:
            content = encode_run(_load(path))[2]
        except MemoryError:
            return
        except Exception as error:
            print((str(error).strip().splitlines() or [type(error).__name__])[0], flush=True)
            return
        with drafted(Path(folder, f"{number}.nc"), durable=False) as draft:
            draft.write_bytes(content)


def _limit_cpu(seconds: int) -> None:
    """End this process by a signal if it uses more CPU from now on."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + seconds + 1
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def _load(path: Path) -> xr.DataTree:
    import h5py

    def check(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            check_size(f"/{name}", item.nbytes, item.id.get_storage_size())

    with h5py.File(path, "r") as file:
        file.visititems(check)
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        return tree.load()


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
