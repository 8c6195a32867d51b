"""Recordings of measurements whose process left none, or did not finish its recording."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchkit.experiment.run.kernel import KernelError
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.workloads import Variant
from benchkit.whole_file import write_whole


def write_failure(
    folder: Path, metadata: Mapping[str, Any], variant: Variant, error: KernelError
) -> Path:
    """Write a recording for a process that left none."""
    writer = RecordingWriter(folder, metadata["id"])
    writer.head(
        **metadata,
        started=time.time(),
        workload=variant.name,
        category=variant.workload.category,
        params=variant.params,
    )
    outcome = "failed" if error.is_usage_error else "infrastructure"
    writer.tail(outcome=outcome, error=str(error), phase="kernel")
    return writer.path


def write_tail(path: Path, error: KernelError) -> None:
    """Finish a recording whose process ended before."""
    outcome = "timeout" if error.kind == "timeout" else "infrastructure"
    tail = {"outcome": outcome, "error": str(error), "phase": "kernel"}
    write_whole(path / "tail.json", json.dumps(tail))
