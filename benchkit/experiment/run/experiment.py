"""An experiment: arms x variants x blocks, measured in one kernel per arm and added to the store.

Makes the plan, applies the stop policy and handles measurements that fail. Does not print:
`Experiment.run` yields events.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchkit.errors import ClusterError, InvalidClusterError, StoreError
from benchkit.experiment.environment.cache import Built, try_lock
from benchkit.experiment.paths import file_name, notebook_path
from benchkit.experiment.run.estimate import (
    Estimate,
    KnownWorkload,
    known_durations,
    load_known,
    worker_price,
)
from benchkit.experiment.run.events import Event, Finished, Planned, Skipped, Started
from benchkit.experiment.run.kernel import KernelError, MeasuringKernel
from benchkit.experiment.run.plan import (
    Arm,
    Measurement,
    format_size,
    in_stored_order,
    plan_measurements,
    plan_name,
    recorded_key,
    write_plan,
)  # fmt: skip
from benchkit.experiment.run.stopping import MIN_BLOCKS, StopPolicy
from benchkit.experiment.virtual.process import SimulationProcessError, VirtualSpec
from benchkit.measure.arguments import check_scale, check_seconds, check_tags
from benchkit.measure.artifacts import parse_capture
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.deadline import DEFAULT_DEADLINE_S
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id
from benchkit.measure.secrets import remember_secrets
from benchkit.measure.suite.collect import absolute_folder
from benchkit.measure.workloads import Variant
from benchkit.store.storage import RECORDINGS
from benchkit.store.store import Store
from benchkit.table import Table
from benchkit.whole_file import write_whole

if TYPE_CHECKING:
    from benchkit.experiment.virtual.inputs import VirtualInput

#: Extra seconds before the kernel is killed, for steps without a deadline of their own (prepare,
#: check, cleanup): a process that the watchdog inside of it cannot end.
GRACE_S = 180.0
#: What the notebook `measure` imports: Dask, distributed and what captures.
_ENTRY_POINT = "benchkit.measure.entrypoint"
#: Further attempts of a measurement whose infrastructure failed.
RETRIES = 1


#: Measurements in turn whose cluster did not open, after which no more are tried.
MAX_FAILURES = 2


class ClusterStarts:
    """Account of the clusters that opened: per arm, and per cluster options of a workload.

    A wrong address, key, certificate, partition or login shows when the first cluster of an arm
    does not open: one that never did is a mistake, and no run. Later failures, and those of local
    clusters, are runs with the outcome `infrastructure`.
    """

    def __init__(self) -> None:
        self._opened: set[tuple[str, str]] = set()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._errors: list[ClusterError | InvalidClusterError] = []

    def is_hopeless(self, arm: str, options: Any) -> bool:
        """Return whether a cluster never opened, and was tried often enough."""
        return self._failures[arm, repr(options)] >= MAX_FAILURES

    @contextmanager
    def errors_at_end(self, at_end: bool) -> Iterator[None]:
        """Keep an error of a cluster that the body raises, for `raise_first`."""
        try:
            yield
        except (ClusterError, InvalidClusterError) as error:
            if not at_end:
                raise
            self._errors.append(error)

    def raise_first(self) -> None:
        """Raise the first error that was kept, if there is one."""
        if self._errors:
            raise self._errors[0]

    def error(
        self, arm: Arm, options: Any, attributes: Mapping[Any, Any], error: KernelError | None
    ) -> ClusterError | InvalidClusterError | None:
        """Return an error if the cluster of a measurement did not open, and never did before."""
        key = arm.name, repr(options)
        is_invalid = error is not None and str(error).startswith(InvalidClusterError.__name__)
        phase = attributes.get("phase", "")
        failed = phase == "open" and attributes["outcome"] == "infrastructure"
        if not is_invalid and not failed:
            if phase not in ("open", "kernel"):
                self._opened.add(key)
            return None
        is_local = ClusterSpec.from_dict(arm.environment.cluster).is_local
        if key in self._opened or (is_local and not is_invalid):
            return None
        self._failures[key] += 1
        kind = InvalidClusterError if is_invalid else ClusterError
        text = attributes["error"].removeprefix(f"{kind.__name__}: ")
        return kind(f"environment {arm.environment.name!r}: {text}")


@dataclass
class Experiment:
    """Arms x variants x blocks."""

    store: Store  # Receives the runs
    arms: Sequence[Arm]  # Environments, the baseline first
    variants: Sequence[Variant]  # Variants to measure
    folders: Sequence[Path]  # Folders from which the measuring processes load the workloads
    repeats: int = 1  # Number of blocks: runs of each variant in each arm
    scale: float = 1.0  # scale, capture, deadline_s: See `benchkit.measure.runner.execute`.
    capture: str = "full"
    deadline_s: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)  # Tags of the runs
    # budget_s, budget_usd, adaptive, min_blocks: See `benchkit.experiment.run.stopping.StopPolicy`.
    budget_s: float | None = None
    budget_usd: float | None = None
    adaptive: bool = False
    min_blocks: int = MIN_BLOCKS
    # If a cluster does not open, measure what needs another cluster before the error is raised.
    keep_going: bool = False
    # Arguments of the command, stored with the plan; `resume_experiment` reads them.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # Simulate on this virtual cluster instead of measuring; the block is the draw.
    virtual: VirtualSpec | None = None
    # Id of the experiment; the id of a stored experiment resumes it.
    id: str = field(default_factory=new_id)
    # Draw of the next simulations; None: the number of the block.
    draw: int | None = field(default=None, init=False)
    _kernels: dict[str, MeasuringKernel] = field(default_factory=dict, init=False, repr=False)
    _connected: set[str] = field(default_factory=set, init=False, repr=False)
    _starts: ClusterStarts = field(default_factory=ClusterStarts, init=False, repr=False)

    def __post_init__(self) -> None:
        check_scale(self.scale)
        check_seconds(self.deadline_s, "deadline_s")
        check_seconds(self.budget_s, "budget_s")
        parse_capture(self.capture)
        self.tags = check_tags(self.tags)
        remember_secrets(self.tags, self.arguments, *(v.params for v in self.variants))
        plan_measurements([arm.name for arm in self.arms], {}, 0)  # only checks

    @cached_property
    def plan(self) -> list[Measurement]:
        """Measurements in order, computed once; those with a stored run are left out."""
        deadlines = {
            variant.name: self.deadline_s or variant.workload.deadline_s or DEFAULT_DEADLINE_S
            for variant in self.variants
        }
        measurements = plan_measurements([arm.name for arm in self.arms], deadlines, self.repeats)
        done = {
            (int(run["block"]), run["arm"], run["workload"])  # as recorded: without secrets
            for run in self._stored_runs()
            if run["outcome"] != "infrastructure"
        }
        arms = {arm.name: arm for arm in self.arms}
        variants = {variant.name: variant for variant in self.variants}
        bound = [
            replace(entry, variant=arms[entry.arm].bind(variants[entry.variant]).name)
            for entry in measurements
        ]
        if self.is_stored:
            bound = in_stored_order(self.store, self.id, bound)
        return [entry for entry in bound if recorded_key(entry) not in done]

    @cached_property
    def known_workloads(self) -> dict[str, KnownWorkload]:
        """Durations and noise that come with the workloads, by variant."""
        return load_known(self.folders, self.scale)

    @cached_property
    def estimate(self) -> Estimate:
        """Estimate of the time until the end of the plan; `run` updates it."""
        durations = known_durations(self.store, self.known_workloads)
        return Estimate([measurement.variant for measurement in self.plan], durations)

    @cached_property
    def stop_policy(self) -> StopPolicy:
        """Decides what is skipped; its budget starts with the first access."""
        policy = StopPolicy(
            [arm.name for arm in self.arms],
            [variant.name for variant in self.variants],
            self.estimate,
            budget_s=self.budget_s,
            budget_usd=self.budget_usd,
            adaptive=self.adaptive,
            min_blocks=self.min_blocks,
        )
        for run in self._stored_runs():  # of an experiment that is resumed
            policy.record(run)
        return policy

    def _repr_html_(self) -> str:
        rows = [arm.row() for arm in self.arms]
        size = format_size(self.arms, self.variants, self.repeats)
        return f"<p>Experiment {self.id}: {size}</p>{Table(rows).to_html()}"

    def _stored_runs(self) -> list[dict[str, Any]]:
        if not self.is_stored:
            return []
        runs = self.store.runs(experiment=self.id)
        return [{str(k): v for k, v in row.items()} for row in runs.to_dict("records")]

    def run(self, plan: Iterable[Measurement] | None = None) -> Iterator[Event]:
        """Measure, store each run, and yield an event for each step.

        A measurement that fails is a run with an outcome. Only Ctrl-C and a store that cannot be
        written end the experiment early; the runs measured until then are kept. While an arm
        measures, the processes of the other arms are stopped.
        """
        self.store.create()
        # Before the plan is stored: only the runs of a resumed experiment are read.
        estimate, policy = self.estimate, self.stop_policy
        self._write_plan()
        with ExitStack() as stack:
            stack.push(self._remove_recordings)
            stack.callback(self.store.files.publish, f"experiments/{self.id}")
            stack.callback(self._close_kernels)
            is_alone = not self._uses_this_machine or try_lock("measuring", stack)
            yield Planned(tuple(self.plan), estimate.remaining_seconds, is_alone)
            for measurement in self.plan if plan is None else plan:
                options = self._variant(measurement.variant).workload.cluster
                is_hopeless = self._starts.is_hopeless(measurement.arm, options)
                reason = "cluster" if is_hopeless else policy.should_skip(measurement)
                if reason:
                    estimate.discard(measurement.variant)
                    yield Skipped(measurement, reason, estimate.remaining_seconds)
                else:
                    with self._starts.errors_at_end(self.keep_going):
                        self._check_connection(measurement.arm, options)
                        yield Started(measurement, estimate.remaining_seconds)
                        yield from self._attempts(measurement)
        self._starts.raise_first()

    @property
    def _uses_this_machine(self) -> bool:
        """Whether another experiment on this machine would disturb the times."""
        specs = [ClusterSpec.from_dict(arm.environment.cluster) for arm in self.arms]
        # A bisection that is resumed adds its arms later.
        return self.virtual is None and (not specs or any(spec.is_local for spec in specs))

    def _attempts(self, measurement: Measurement) -> Iterator[Finished]:
        """Measure until the infrastructure works, 1 + `RETRIES` times at most."""
        arm = self._arm(measurement.arm)
        started = time.monotonic()
        kernel = self._kernel(arm)
        with kernel.running():
            for attempt in range(1 + RETRIES):
                record = self._measure(kernel, arm, measurement)
                self.stop_policy.record(record)
                failed = record["outcome"] == "infrastructure"
                will_retry = failed and attempt < RETRIES
                if not failed:
                    elapsed = time.monotonic() - started
                    self.estimate.finished(measurement.variant, elapsed, record.get("duration"))
                elif not will_retry:
                    self.estimate.discard(measurement.variant)
                yield Finished(measurement, record, will_retry, self.estimate.remaining_seconds)
                if not will_retry:
                    break

    def _arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def _kernel(self, arm: Arm) -> MeasuringKernel:
        if arm.name not in self._kernels:
            label = self._file_label(arm)
            self._kernels[arm.name] = MeasuringKernel(
                arm.environment, self.folder, label, imports=_ENTRY_POINT
            )
        return self._kernels[arm.name]

    def _check_connection(self, name: str, options: Any) -> None:
        """Raise before the first measurement of an arm if its running cluster does not respond."""
        arm = self._arm(name)
        is_running = ClusterSpec.from_dict(arm.environment.cluster).address is not None
        if self.virtual is not None or name in self._connected or not is_running:
            return
        with self._kernel(arm).running():
            try:
                self._kernel(arm).check_connection()
            except KernelError as error:
                facts = {"outcome": "infrastructure", "phase": "open", "error": str(error)}
                refusal = self._starts.error(arm, options, facts, error)
                if refusal is not None:
                    raise refusal from error
            else:
                self._connected.add(name)

    def retire(self, *keep: str) -> None:
        """End the processes of all other arms; a later measurement starts a new process."""
        for name in [name for name in self._kernels if name not in keep]:
            self._kernels.pop(name).close()

    def _remove_recordings(self, kind: object, error: object, trace: object) -> None:
        # If a run cannot be stored (disk full), `benchkit store check` stores it later.
        if not isinstance(error, (StoreError, OSError)):
            shutil.rmtree(self.recordings, ignore_errors=True)

    def _close_kernels(self) -> None:
        with ExitStack() as stack:  # closes all, even if closing raises
            for kernel in self._kernels.values():
                stack.callback(kernel.close)
            self._kernels.clear()

    @property
    def folder(self) -> Path:
        """Local folder in which the notebooks, the logs and the reports are written."""
        return self.store.files.workspace(f"experiments/{self.id}")

    @property
    def is_stored(self) -> bool:
        """Whether the store has the plan, so that the experiment can be resumed."""
        return self.store.files.exists(plan_name(self.id))

    @property
    def recordings(self) -> Path:
        """Folder of raw recordings that are not runs yet."""
        return self.store.files.workspace(f"{RECORDINGS}/{self.id}")

    def _write_plan(self) -> None:
        settings = {
            "words": dict(self.arguments),
            "started": time.time(),
            "arms": [
                {"name": a.name, "environment": a.environment.to_dict(), "point": dict(a.point)}
                for a in self.arms
            ],
            "order": "abba",  # earlier versions had a random order, too
            "scale": self.scale,
            "capture": self.capture,
            "tags": dict(self.tags),
            **({"virtual": asdict(self.virtual)} if self.virtual else {}),
        }
        write_plan(self.store, self.id, self.plan, settings)

    def _measure(self, kernel: MeasuringKernel, arm: Arm, entry: Measurement) -> dict[str, Any]:
        metadata = _run_metadata(self.id, arm, entry, kernel.built, self.tags)
        if self.virtual is not None:
            return self._simulate(kernel, entry, metadata)
        variant = self._variant(entry.variant)
        params = variant.undeclared_params()
        # A variant's own label is written in a workload file; other parameters have any value.
        label = variant.workload.name if params else variant.name
        names = f"{file_name(self._file_label(arm))}-{file_name(label)}"
        output = self.folder / "notebooks" / f"{entry.order:04d}-{names}.ipynb"
        start_s = ClusterSpec.from_dict(arm.environment.cluster).start_timeout_s
        kernel_error: KernelError | None = None
        try:
            kernel.start()
            # A second of imports for the end of the run, while the process has its own.
            import_module("benchkit.store.build.run_from_recording")
            kernel.execute(
                notebook_path("measure"),
                output,
                {
                    "workload": entry.variant,
                    "params": params,
                    "workloads": list(map(absolute_folder, self.folders)),
                    "recordings": str(self.recordings.resolve()),
                    "cluster": dict(arm.environment.cluster),
                    "clusters": {k: dict(v) for k, v in arm.environment.clusters.items()},
                    "engine": arm.environment.engine,
                    "preload": list(arm.environment.preload),
                    "scale": self.scale,
                    "capture": self.capture,
                    "deadline_s": entry.deadline_s,
                    "facts": metadata,
                },
                timeout_s=3 * entry.deadline_s + start_s + GRACE_S,
            )
        except KernelError as error:
            kernel_error = error
        return self._store_run(arm, self._variant(entry.variant), metadata, kernel_error)

    @cached_property
    def virtual_inputs(self) -> dict[str, VirtualInput]:
        """Graph and cluster of each variant that is simulated."""
        if self.virtual is None:
            return {}
        from benchkit.experiment.virtual.inputs import VirtualInput

        options = (self.virtual, self.store, self.folders, self.scale)
        variants = {*self.variants, *(self._variant(entry.variant) for entry in self.plan)}
        return {variant.name: VirtualInput.of(variant, *options) for variant in variants}

    def _simulate(
        self, kernel: MeasuringKernel, measurement: Measurement, metadata: dict[str, Any]
    ) -> dict[str, Any]:
        from benchkit.store.build.run_from_recording import run_from_recording

        virtual = self.virtual_inputs[measurement.variant]
        try:
            draw = measurement.block if self.draw is None else self.draw
            path = virtual.simulate(kernel, draw, self.recordings, metadata)
        except SimulationProcessError as error:
            path = self._failure(metadata, measurement.variant, KernelError("raised", str(error)))
        tree = run_from_recording(path)
        self.store.add(tree)
        return json.loads(tree.attrs["record"])

    def _failure(self, metadata: dict[str, Any], variant: str, error: KernelError) -> Path:
        head = {**metadata, "scale": self.scale, "capture": self.capture}
        return _write_failure(self.recordings, head, self._variant(variant), error)

    def _file_label(self, arm: Arm) -> str:
        """Return an arm's part of a file name; the name of a grid point has its values."""
        return f"point-{list(self.arms).index(arm)}" if arm.point else arm.name

    def _variant(self, name: str) -> Variant:
        in_arms = (arm.bind(variant) for arm in self.arms for variant in self.variants)
        return next(variant for variant in in_arms if variant.name == name)

    def _store_run(
        self, arm: Arm, variant: Variant, metadata: dict[str, Any], kernel_error: KernelError | None
    ) -> dict[str, Any]:
        """Add the run to the store; its error is the reason if the recording is not complete."""
        from benchkit.store.artifacts import move_artifacts, record_artifacts
        from benchkit.store.build.run_from_recording import run_from_recording

        run_id = metadata["id"]
        path = self.recordings / f"{run_id}.recording"
        if not (path / "head.json").exists():
            shutil.rmtree(path, ignore_errors=True)
            error = kernel_error or KernelError("raised", "notebook ended without a recording")
            path = self._failure(metadata, variant.name, error)
        elif kernel_error is not None and not (path / "tail.json").exists():
            _write_tail(path, kernel_error)
        tree = run_from_recording(path)
        refusal = self._starts.error(arm, variant.workload.cluster, tree.attrs, kernel_error)
        if refusal is not None:
            shutil.rmtree(path, ignore_errors=True)  # `benchkit store check` would store it
            raise refusal
        record_artifacts(tree, path, self.id, run_id)
        self.store.add(tree)
        try:
            move_artifacts(path, self.store.files, self.id, run_id)
            self.store.files.publish(f"experiments/{self.id}/notebooks")
        except (OSError, StoreError) as error:
            warnings.warn(f"{run_id}: artifacts of the run were not stored: {error}", stacklevel=2)
        return json.loads(tree.attrs["record"])


def _run_metadata(
    experiment: str, arm: Arm, entry: Measurement, built: Built, tags: Mapping[str, str]
) -> dict[str, Any]:
    """Return the metadata of a new run."""
    spec = arm.environment.to_dict()
    return {
        "id": new_id(),
        "environment": arm.environment.name,
        "environment_spec": {**spec, "built": built.to_dict()},
        "variables": spec["variables"],  # without the values of secrets
        "experiment": experiment,
        "arm": arm.name,
        "block": entry.block,
        "order": entry.order,
        "tags": dict(tags),
        "worker_price": worker_price(arm.environment),
    }


def _write_failure(
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


def _write_tail(path: Path, error: KernelError) -> None:
    """Finish a recording whose process ended before."""
    outcome = "timeout" if error.kind == "timeout" else "infrastructure"
    tail = {"outcome": outcome, "error": str(error), "phase": "kernel"}
    write_whole(path / "tail.json", json.dumps(tail))
