"""Record a function on a cluster as `benchkit run` records a workload."""

import gc
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from distributed import Client

from benchkit.measure.capture_client import Observer
from benchkit.measure.provenance import host_info
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id


def record_work(
    client: Client, workload: str, work: Callable[[], Any], deadline_s: float | None = None
) -> tuple[Path, str]:
    """Return the recording of a function that uses the cluster, and its error as a line or ""."""
    writer = RecordingWriter(Path(tempfile.mkdtemp()), new_id())
    run_id = writer.path.name.partition(".")[0]
    facts = {"workload": workload, "capture": "full", "host": host_info()}  # its number of cores
    writer.head(id=run_id, started=time.time(), **facts)
    observer = Observer(client, writer, f"benchkit-{run_id}")
    observer.install()
    # Else a collection in the scheduler's process takes 0.3 s of some runs.
    gc.collect()
    observer.clock_on()
    error = ""
    pool = ThreadPoolExecutor(1)
    try:
        pool.submit(work).result(deadline_s)
    except Exception as problem:  # a planted fault may end the function, or stop it
        error = f"{type(problem).__name__}: {problem}".splitlines()[0]
    pool.shutdown(wait=False)  # a function that hangs ends when its client is closed
    observer.clock_off()
    time.sleep(0.6)  # a heartbeat: the last samples of the workers
    observer.uninstall()
    writer.tail(outcome="failed" if error else "ok", error=error, **observer.tail())
    return writer.path, error
