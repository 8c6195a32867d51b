"""Check what works on this machine by using it: Dask, kernels, disk, credentials, clocks.

Each check is short, needs no network, and names the repair of a problem.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from uuid import uuid4

import benchkit
from benchkit.errors import AlreadyStored, UsageError, install_command
from benchkit.experiment.environment.environment import CURRENT
from benchkit.experiment.environment.lookup import find_environment
from benchkit.experiment.paths import collect_workloads
from benchkit.experiment.run.kernel import MeasuringKernel
from benchkit.formatting import counted, format_bytes, format_seconds
from benchkit.interruption import uninterrupted
from benchkit.measure.cluster.running import open_cluster
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.data.dataset import data_folder
from benchkit.private_folder import private_folder
from benchkit.store.files import LocalFiles
from benchkit.store.store import Store

#: Minimum free disk in bytes: with less, spilling workloads and datasets fill the disk.
MIN_DISK_BYTES = 5 * 2**30
#: Extra of benchkit -> its packages.
_EXTRAS = {
    "show": ("panel", "bokeh", "hvplot", "nbconvert"),
    "workloads": ("duckdb", "tpchgen-cli"),
    "cloud": ("obstore", "boto3"),
    "s3": ("s3fs",),
    "coiled": ("coiled",),
}


@dataclass(frozen=True)
class CheckResult:
    """Result of one check."""

    check: str  # Name of the check
    status: str  # Works; is not installed or configured (optional); does not work
    detail: str  # Observation, and what to do

    def to_dict(self) -> dict[str, str]:
        """Return the result as a flat dictionary."""
        return asdict(self)


def run_checks(store: str | None = None) -> Iterator[CheckResult]:
    """Run all checks of this machine, and yield each result when it is known."""
    checks: list[tuple[str, Callable[[], tuple[str, str]]]] = [
        ("machine", _machine),
        ("packages", _packages),
        *((f"extra {name}", _extra(name)) for name in _EXTRAS),
        ("workloads", _workloads),
        ("store", lambda: _store(store)),
        ("data", lambda: _disk(data_folder())),
        ("spill", _spill),
        ("clocks", _clocks),
        ("browser", _browser),
        ("credentials", _credentials),
        ("cluster", _cluster),
        ("kernel", _kernel),
    ]
    for name, check in checks:
        try:
            status, detail = check()
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0]
            status, detail = "trouble", text or type(error).__name__
        yield CheckResult(name, status, detail)


def _machine() -> tuple[str, str]:
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return "ok", f"{CPU_COUNT} cores, {format_bytes(MEMORY_LIMIT)}, {where}"


def _packages() -> tuple[str, str]:
    names = ("dask", "distributed", "xarray", "papermill")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return "ok", f"benchkit {benchkit.__version__}, {versions}"


def _extra(name: str) -> Callable[[], tuple[str, str]]:
    def check() -> tuple[str, str]:
        missing = []
        for package in _EXTRAS[name]:
            try:
                version(package)
            except PackageNotFoundError:
                missing.append(package)
        if missing:
            return "absent", f"{', '.join(missing)} not installed: {install_command(name)}"
        return "ok", ", ".join(_EXTRAS[name])

    return check


def _workloads() -> tuple[str, str]:
    collection = collect_workloads()
    variants = collection.variants()
    if collection.broken:
        return (
            "trouble",
            f"{counted(len(collection.broken), 'broken file')}, first {collection.broken[0]}",
        )
    n_unavailable = sum(bool(variant.missing_packages()) for variant in variants)
    missing = f", {n_unavailable} need a missing package" if n_unavailable else ""
    sizes = counted(len(collection.workloads), "workload"), counted(len(variants), "variant")
    return "ok", f"{', '.join(sizes)}{missing}"


def _store(path: str | None) -> tuple[str, str]:
    try:
        store = Store(path, create=False)
        before = f"{counted(len(store), 'run')}, "
        return _disk(store.path, before) if isinstance(store.path, Path) else _bucket(store, before)
    except UsageError as error:
        return "absent", str(error)


def _bucket(store: Store, before: str) -> tuple[str, str]:
    """Write a file twice, read it and delete it."""
    name, began = f"tmp/{uuid4().hex}", time.monotonic()
    store.files.create(name, b"x")
    try:
        store.files.create(name, b"y")
    except AlreadyStored:
        kept = store.files.read(name) == b"x"
    else:
        kept = False
    store.files.delete(name)
    if not kept:
        return "trouble", f"{store.path} replaces files: concurrent writers would lose runs"
    elapsed = format_seconds(time.monotonic() - began)
    return "ok", f"{before}{store.path}: a file was written, read and deleted in {elapsed}"


def _disk(folder: Path, before: str = "") -> tuple[str, str]:
    """Try the file operations of writing a run in a folder or its nearest existing parent."""
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    with uninterrupted():
        made = tempfile.TemporaryDirectory(dir=folder, prefix=".benchkit-")
    with made as scratch:
        LocalFiles(Path(scratch)).create("final", b"x")
    status = "ok" if free > MIN_DISK_BYTES else "trouble"
    hint = "" if status == "ok" else ": too little for spilling workloads"
    return status, f"{before}{format_bytes(free)} free below {folder}{hint}"


def _spill() -> tuple[str, str]:
    import dask

    return _disk(Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir()))


def _clocks() -> tuple[str, str]:
    """Compare the wall clock with the monotonic clock to detect a clock that is adjusted."""
    wall, monotonic = time.time(), time.monotonic()
    time.sleep(0.25)
    drift = (time.time() - wall) - (time.monotonic() - monotonic)
    detail = f"wall and monotonic clock differ by {abs(drift) * 1e6:.0f} µs in 0.25 s"
    if abs(drift) > 1e-3:
        return "trouble", f"{detail}: the clock is being adjusted; durations will be wrong"
    return "ok", detail


def _browser() -> tuple[str, str]:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return "ok", path
    return "absent", "no Chromium: only the browser tests of benchkit itself need it"


def _credentials() -> tuple[str, str]:
    """Return which credentials are set, never their values."""
    import dask

    is_set = {
        "coiled": bool(dask.config.get("coiled.token", None) or os.environ.get("COILED_API_TOKEN")),
        "S3": any(os.environ.get(n) for n in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"))
        or Path("~/.aws/credentials").expanduser().exists(),
        "GitHub": bool(os.environ.get("GITHUB_TOKEN")),
    }
    present = [name for name, value in is_set.items() if value]
    absent = [name for name, value in is_set.items() if not value]
    detail = f"{', '.join(present) or 'none'}; not set: {', '.join(absent) or 'none'}"
    return ("ok" if present else "absent"), detail


def _cluster() -> tuple[str, str]:
    began = time.monotonic()
    with open_cluster(ClusterSpec.default()) as cluster:
        result = cluster.client.submit(sum, [1, 2, 3]).result(timeout=30)
    elapsed = format_seconds(time.monotonic() - began)
    if result != 6:
        return "trouble", f"the cluster computed 1 + 2 + 3 = {result}"
    size = "{n_workers} workers, {n_threads} threads".format(**cluster.description)
    return "ok", f"{size}, started and closed in {elapsed}"


def _kernel() -> tuple[str, str]:
    import nbformat

    began = time.monotonic()
    cell = nbformat.v4.new_code_cell("import benchkit.measure\nassert 1 + 1 == 2")
    with private_folder() as folder:
        notebook = Path(folder) / "in.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), str(notebook))
        with MeasuringKernel(find_environment(CURRENT, []), Path(folder)) as kernel:
            kernel.execute(notebook, Path(folder) / "out.ipynb", {}, timeout_s=60)
    return "ok", f"starts and answers in {format_seconds(time.monotonic() - began)}"
