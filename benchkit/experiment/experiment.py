"""An experiment: variants, some times each, measured in a kept kernel and added to the store.

Knows the plan and what to do when a measurement goes wrong. Does not print: whoever runs it gets
an event before and after each measurement.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchkit.experiment.environment import Environment
from benchkit.experiment.folders import notebook_path
from benchkit.experiment.kernel import KernelTrouble, MeasuringKernel
from benchkit.measure.execution import DEFAULT_DEADLINE_S
from benchkit.measure.identity import new_id
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.workloads import Variant
from benchkit.store.run import run_from_recording
from benchkit.store.store import Store

__all__ = ["Experiment", "Measurement"]

#: Steps around the workload (cluster, prepare, check, cleanup) on top of the kernel's own
#: watchdog: whoever is not back by then hangs where the watchdog cannot reach.
GRACE_S = 180.0


@dataclass(frozen=True)
class Measurement:
    """One entry of the plan: which variant, for the how-manieth time, in which place."""

    order: int
    block: int
    variant: str
    deadline_s: float


@dataclass
class Experiment:
    """Variants x repeats in one environment.

    Parameters
    ----------
    store : Store
        Where runs go.
    environment : Environment
        What they run in.
    variants : sequence of Variant
        What runs.
    folders : sequence of path
        Where the measuring process finds the workloads.
    repeats : int, default 1
        How often; all variants once, then all again, so that a slow minute is shared.
    scale, capture, deadline_s
        See `benchkit.measure.execution.execute`.
    tags : mapping of str to str, optional
        What the runs are tagged with.
    """

    store: Store
    environment: Environment
    variants: Sequence[Variant]
    folders: Sequence[Path]
    repeats: int = 1
    scale: float = 1.0
    capture: str = "full"
    deadline_s: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    id: str = field(default_factory=new_id)

    def plan(self) -> list[Measurement]:
        """Return what will be measured, in order."""
        return [
            Measurement(
                order=block * len(self.variants) + index,
                block=block,
                variant=variant.name,
                deadline_s=self.deadline_s or variant.workload.deadline_s or DEFAULT_DEADLINE_S,
            )
            for block in range(self.repeats)
            for index, variant in enumerate(self.variants)
        ]

    def run(
        self, before: Callable[[Measurement], None] = lambda measurement: None
    ) -> Iterator[dict[str, Any]]:
        """Measure, and give the record of each run as it is stored.

        A measurement that goes wrong is a run with an outcome; only Ctrl-C and a store that
        cannot be written end the experiment early, and what was measured is kept.

        Yields
        ------
        dict
            The run's record.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        plan = self.plan()
        self._write_plan(plan)
        kernel = MeasuringKernel(self.environment, self.folder)
        try:
            for measurement in plan:
                before(measurement)
                yield self._measure(kernel, measurement)
        finally:
            kernel.close()
            shutil.rmtree(self.recordings, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where plan, executed notebooks and reports are kept."""
        return Path(self.store.path) / "experiments" / self.id

    @property
    def recordings(self) -> Path:
        """Where raw recordings wait to become runs."""
        return Path(self.store.path) / "tmp" / "recordings" / self.id

    def _write_plan(self, plan: list[Measurement]) -> None:
        content = {
            "id": self.id,
            "command": self.command,
            "started": time.time(),
            "environment": self.environment.to_dict(),
            "scale": self.scale,
            "capture": self.capture,
            "tags": dict(self.tags),
            "plan": [asdict(measurement) for measurement in plan],
        }
        (self.folder / "plan.json").write_text(json.dumps(content, indent=1), encoding="utf-8")

    def _measure(self, kernel: MeasuringKernel, measurement: Measurement) -> dict[str, Any]:
        run_id = new_id()
        facts = {
            "id": run_id,
            "environment": self.environment.name,
            "environment_spec": self.environment.to_dict(),
            "variables": dict(self.environment.variables),
            "experiment": self.id,
            "arm": self.environment.name,
            "block": measurement.block,
            "order": measurement.order,
            "tags": dict(self.tags),
        }
        name = "".join(c if c.isalnum() or c in "._=-" else "-" for c in measurement.variant)
        output = self.folder / "notebooks" / f"{measurement.order:04d}-{name[:80]}.ipynb"
        trouble: KernelTrouble | None = None
        try:
            kernel.execute(
                notebook_path("measure"),
                output,
                {
                    "workload": measurement.variant,
                    "params": self._params(measurement.variant),
                    "workloads": [str(Path(folder).resolve()) for folder in self.folders],
                    "recordings": str(self.recordings.resolve()),
                    "cluster": dict(self.environment.cluster),
                    "clusters": {k: dict(v) for k, v in self.environment.clusters.items()},
                    "scale": self.scale,
                    "capture": self.capture,
                    "deadline_s": measurement.deadline_s,
                    "facts": facts,
                },
                timeout_s=3 * measurement.deadline_s + GRACE_S,
            )
        except KernelTrouble as error:
            trouble = error
        return self._keep(run_id, measurement, facts, trouble)

    def _params(self, name: str) -> dict[str, Any]:
        """Return the parameters of a variant that its workload does not list, to be set there."""
        variant = self._variant(name)
        listed = any(name == other.name for other in variant.workload.variants())
        return {} if listed else dict(variant.params)

    def _variant(self, name: str) -> Variant:
        return next(variant for variant in self.variants if variant.name == name)

    def _keep(
        self,
        run_id: str,
        measurement: Measurement,
        facts: dict[str, Any],
        trouble: KernelTrouble | None,
    ) -> dict[str, Any]:
        """Turn the recording into a stored run; without a finished one, say why in the run."""
        path = self.recordings / f"{run_id}.recording"
        if not (path / "head.json").exists():
            shutil.rmtree(path, ignore_errors=True)
            reason = str(trouble) if trouble else "the notebook ended without a recording"
            path = self._stand_in(facts, measurement, reason)
        elif trouble is not None and not (path / "tail.json").exists():
            self._finish(path, trouble)
        tree = run_from_recording(path)
        self.store.add(tree)
        self._keep_extras(path, run_id)
        shutil.rmtree(path, ignore_errors=True)
        return json.loads(tree.attrs["record"])

    def _stand_in(self, facts: dict[str, Any], measurement: Measurement, reason: str) -> Path:
        variant = self._variant(measurement.variant)
        writer = RecordingWriter(self.recordings, facts["id"])
        writer.head(
            **facts,
            started=time.time(),
            workload=variant.name,
            category=variant.workload.category,
            params=variant.params,
            scale=self.scale,
            capture=self.capture,
        )
        writer.tail(outcome="infrastructure", error=reason, phase="kernel")
        return writer.path

    def _finish(self, path: Path, trouble: KernelTrouble) -> None:
        outcome = "timeout" if trouble.kind == "timeout" else "infrastructure"
        tail = {"outcome": outcome, "error": str(trouble), "phase": "kernel"}
        (path / "tail.json").write_text(json.dumps(tail), encoding="utf-8")

    def _keep_extras(self, path: Path, run_id: str) -> None:
        """Keep what does not belong into the run file (cluster dumps) beside the experiment."""
        for extra in path.iterdir():
            if extra.suffix != ".json" and not extra.name.startswith("."):
                target = self.folder / "extras" / run_id
                target.mkdir(parents=True, exist_ok=True)
                with suppress(OSError):
                    shutil.move(str(extra), target / extra.name)
