"""Measure the end of a capture: transfer, recording, run file, and reading the file again."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from _capture_state import ADDRESSES, capturing, fake_worker, run_tasks
from distributed import Scheduler

from benchkit import Store
from benchkit.measure.capture import CapturePlugin
from benchkit.measure.run_ids import new_id
from benchkit.measure.recording import RecordingWriter
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.runfile import read_record

__all__ = ["storage"]

#: Tasks between two drains: one second of a scheduler that does little else.
DRAIN_EVERY = 5000


async def storage(counts: tuple[int, ...]) -> None:
    """Print times and sizes for each number of tasks; check that the file holds all of them.

    Parameters
    ----------
    counts : tuple of int
        Numbers of tasks.
    """
    print("\nTransfer and storage")
    print(
        f"{'tasks':>9} {'median drain':>16} {'last drain':>10} {'add to store':>13} "
        f"{'run file':>10} {'per task':>9} {'read record':>12} {'read tasks':>11}"
    )
    for count in counts:
        async with Scheduler(port=0, dashboard=False, validate=False) as scheduler:
            for address in ADDRESSES:
                fake_worker(scheduler, address)
            capture = CapturePlugin("bench")
            async with capturing(scheduler, capture):
                await _store_run(scheduler, capture, count)
            scheduler.workers.clear()


async def _store_run(scheduler: Scheduler, capture: CapturePlugin, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordingWriter(Path(folder), new_id())
        writer.head(id=new_id(), started=time.time(), workload="bench.storage")
        drains, done = [], 0
        while done < count:
            step = min(DRAIN_EVERY, count - done)
            run_tasks(scheduler, step, capture._sample)
            done += step
            begin = time.perf_counter()
            reply = await capture.handle_drain(ack=capture.sequence)
            writer.segment(reply["tables"])
            drains.append(time.perf_counter() - begin)
        t_off = (await capture.handle_off())["t_off"]
        begin = time.perf_counter()
        for segment in (await capture.handle_end(ack=capture.sequence))["segments"]:
            writer.segment(segment["tables"])
        last = time.perf_counter() - begin
        writer.tail(outcome="ok", t_on=capture.t_on, t_off=t_off)
        _print(count, drains, last, writer.path, Path(folder) / "store")


def _print(count: int, drains: list[float], last: float, recording: Path, folder: Path) -> None:
    store = Store(folder)
    begin = time.perf_counter()
    run_id = store.add(run_from_recording(recording))
    added = time.perf_counter() - begin
    run: Any = store.open(run_id).tree
    assert run["tasks"].sizes["task"] == count, run["tasks"].sizes
    assert run["tasks"].attrs["n_dropped"] == 0
    path = max(folder.rglob(f"*{run_id}*"), key=lambda file: file.stat().st_size)
    size = path.stat().st_size
    times = {}
    for name, read in {
        "summary": lambda: read_record(path),
        "stream": lambda: store.open(run_id).tree["tasks"].to_dataset().load(),
    }.items():
        each = []
        for _ in range(7):
            begin = time.perf_counter()
            read()
            each.append(time.perf_counter() - begin)
        times[name] = sorted(each)[3]
    print(
        f"{count:>9} {1e3 * sorted(drains)[len(drains) // 2]:>13.1f} ms {1e3 * last:>7.0f} ms "
        f"{1e3 * added:>10.0f} ms {size / 2**20:>6.2f} MiB {size / count:>7.1f} B "
        f"{1e3 * times['summary']:>9.1f} ms {1e3 * times['stream']:>8.0f} ms",
        flush=True,
    )
