"""An experiment: arms x variants x blocks, measured in kept kernels and added to the store.

Knows the plan and what to do when a measurement goes wrong. Does not print: whoever runs it hears
of each measurement before and after.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchkit.experiment.paths import file_name, notebook_path
from benchkit.experiment.run.kernel import KernelError, MeasuringKernel
from benchkit.experiment.run.plan import Arm, Measurement, plan_measurements, write_plan
from benchkit.experiment.run.prices import worker_price
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id
from benchkit.measure.runner import DEFAULT_DEADLINE_S
from benchkit.measure.workloads import Variant
from benchkit.store.artifacts import keep_beside, tell_beside
from benchkit.store.run import run_from_recording
from benchkit.store.store import Store

__all__ = ["Experiment"]

#: Steps around the workload (cluster, prepare, check, cleanup) on top of the kernel's own
#: watchdog: whoever is not back by then hangs where the watchdog cannot reach.
GRACE_S = 180.0
#: How often a measurement is tried again when the infrastructure failed, and only then.
RETRIES = 1


@dataclass
class Experiment:
    """Arms x variants x blocks.

    Parameters
    ----------
    store : Store
        Where runs go.
    arms : sequence of Arm
        What they run in, the baseline first.
    variants : sequence of Variant
        What runs.
    folders : sequence of path
        Where the measuring processes find the workloads.
    repeats : int, default 1
        Number of blocks: how often each variant runs in each arm.
    order, seed
        See `benchkit.experiment.run.plan.plan_measurements`.
    scale, capture, deadline_s
        See `benchkit.measure.runner.execute`.
    tags : mapping of str to str, optional
        What the runs are tagged with.
    words : mapping, optional
        What was asked for, kept with the plan, so that it can be taken up again.
    id : str
        Id of the experiment; one that is in the store already is gone on with.
    """

    store: Store
    arms: Sequence[Arm]
    variants: Sequence[Variant]
    folders: Sequence[Path]
    repeats: int = 1
    order: str = "abba"
    seed: int = 0
    scale: float = 1.0
    capture: str = "full"
    deadline_s: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=new_id)
    _kernels: dict[str, MeasuringKernel] = field(default_factory=dict, init=False, repr=False)

    def plan(self) -> list[Measurement]:
        """Return what is to be measured, in order; what is in the store already is left out."""
        deadlines = {
            variant.name: self.deadline_s or variant.workload.deadline_s or DEFAULT_DEADLINE_S
            for variant in self.variants
        }
        whole = plan_measurements(
            [arm.name for arm in self.arms],
            deadlines,
            self.repeats,
            order=self.order,
            seed=self.seed,
        )
        done = self._done()
        return [measurement for measurement in whole if measurement.key not in done]

    def _done(self) -> set[tuple[int, str, str]]:
        if not self.folder.exists():
            return set()
        runs = self.store.runs(experiment=self.id)
        runs = runs[runs["outcome"] != "infrastructure"]
        rows = runs[["block", "arm", "workload"]].itertuples(index=False)
        return {(int(block), arm, workload) for block, arm, workload in rows}

    def run(
        self,
        before: Callable[[Measurement], None] = lambda measurement: None,
        skip: Callable[[Measurement], bool] = lambda measurement: False,
        plan: Iterable[Measurement] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Measure, and give the record of each run as it is stored.

        A measurement that goes wrong is a run with an outcome; only Ctrl-C and a store that
        cannot be written end the experiment early, and what was measured is kept. Only the arm
        that measures is awake: the others are frozen.

        Parameters
        ----------
        before : callable
            Called with each measurement before it starts.
        skip : callable
            Asked before each measurement whether it is still worth it.
        plan : iterable of Measurement, optional
            What to measure instead of `plan()`: each is asked for when the one before is stored,
            so that it may depend on what was seen, and arms may be added on the way.

        Yields
        ------
        dict
            The run's record.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = self.plan() if plan is None else plan
        self._write_plan()
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.recordings, ignore_errors=True)
            stack.callback(self._close_kernels)
            for measurement in whole:
                if skip(measurement):
                    continue
                arm = next(arm for arm in self.arms if arm.name == measurement.arm)
                if arm.name not in self._kernels:
                    kernel = MeasuringKernel(arm.environment, self.folder, arm.name)
                    self._kernels[arm.name] = kernel
                before(measurement)
                with self._kernels[arm.name].awake():
                    for _ in range(1 + RETRIES):
                        record = self._measure(self._kernels[arm.name], arm, measurement)
                        yield record
                        if record["outcome"] != "infrastructure":
                            break

    def retire(self, *keep: str) -> None:
        """End the processes of all arms but these; an arm that is measured again starts anew."""
        for name in [name for name in self._kernels if name not in keep]:
            self._kernels.pop(name).close()

    def _close_kernels(self) -> None:
        with ExitStack() as stack:  # each, whatever goes wrong with another
            for kernel in self._kernels.values():
                stack.callback(kernel.close)
            self._kernels.clear()

    @property
    def folder(self) -> Path:
        """Where plan, executed notebooks and reports are kept."""
        return Path(self.store.path) / "experiments" / self.id

    @property
    def recordings(self) -> Path:
        """Where raw recordings wait to become runs."""
        return Path(self.store.path) / "tmp" / "recordings" / self.id

    def _write_plan(self) -> None:
        path = self.folder / "plan.json"
        if path.exists():  # taken up again: the first plan tells the whole
            return
        facts = {
            "words": dict(self.words),
            "started": time.time(),
            "arms": [
                {
                    "name": arm.name,
                    "environment": arm.environment.to_dict(),
                    "point": dict(arm.point),
                }
                for arm in self.arms
            ],
            "order": self.order,
            "seed": self.seed,
            "scale": self.scale,
            "capture": self.capture,
            "tags": dict(self.tags),
        }
        write_plan(path, self.plan(), facts)

    def _measure(
        self, kernel: MeasuringKernel, arm: Arm, measurement: Measurement
    ) -> dict[str, Any]:
        run_id = new_id()
        environment, spec = arm.environment, arm.environment.to_dict()
        facts = {
            "id": run_id,
            "environment": environment.name,
            "environment_spec": {**spec, "built": kernel.built.to_dict()},
            "variables": spec["variables"],  # without the values of secrets
            "experiment": self.id,
            "arm": arm.name,
            "block": measurement.block,
            "order": measurement.order,
            "tags": dict(self.tags),
            "worker_price": worker_price(environment),
        }
        names = f"{file_name(arm.name)}-{file_name(measurement.variant)}"
        file = f"{measurement.order:04d}-{names}.ipynb"
        output = self.folder / "notebooks" / file
        trouble: KernelError | None = None
        try:
            kernel.execute(
                notebook_path("measure"),
                output,
                {
                    "workload": measurement.variant,
                    "params": self._params(measurement.variant),
                    "workloads": [str(Path(folder).resolve()) for folder in self.folders],
                    "recordings": str(self.recordings.resolve()),
                    "cluster": dict(environment.cluster),
                    "clusters": {k: dict(v) for k, v in environment.clusters.items()},
                    "scale": self.scale,
                    "capture": self.capture,
                    "deadline_s": measurement.deadline_s,
                    "facts": facts,
                },
                timeout_s=3 * measurement.deadline_s + GRACE_S,
            )
        except KernelError as error:
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
        trouble: KernelError | None,
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
        tell_beside(tree, path, self.id, run_id)
        self.store.add(tree)
        try:
            keep_beside(path, self.store.path, self.id, run_id)
        except OSError as error:
            warnings.warn(f"{run_id}: what was asked for beside it is lost: {error}", stacklevel=2)
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

    def _finish(self, path: Path, trouble: KernelError) -> None:
        outcome = "timeout" if trouble.kind == "timeout" else "infrastructure"
        tail = {"outcome": outcome, "error": str(trouble), "phase": "kernel"}
        (path / "tail.json").write_text(json.dumps(tail), encoding="utf-8")
