"""Execute one variant once: open, prepare, warm up, clock on, work, clock off, check, write.

Every error becomes an outcome of the recording, with the step that raised it. Only Ctrl-C and
invalid arguments are raised.
"""

from __future__ import annotations

import gc
import math
import shutil
import sys
import time as wall
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from distributed.comm.core import CommClosedError

from benchkit.measure.arguments import check_scale, check_seconds, declared_unit, own_metric
from benchkit.measure.artifacts import collect_extras, dump_cluster, parse_capture
from benchkit.measure.capture_client import Observer
from benchkit.measure.cluster.reuse import reused_cluster
from benchkit.measure.cluster.running import RunningCluster
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.deadline import (
    DEFAULT_DEADLINE_S,
    call_with_timeout,
    deadline,
    describe_unfinished_tasks,
    scheduler_responds,
    stacks_of,
)
from benchkit.measure.engines import DASK, engine_named
from benchkit.measure.engines.engine import Engine
from benchkit.measure.errors import DeadlinePassed, UsageError, error_summary
from benchkit.measure.outcomes import classify_error
from benchkit.measure.prometheus import Prometheus, record_prometheus
from benchkit.measure.provenance import collect_provenance
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id
from benchkit.measure.scale import Scale
from benchkit.measure.source import names_used
from benchkit.measure.workloads import Variant

#: Last lines of the log of each worker that a run keeps.
LOG_LINES = 100


class SkipRun(Exception):
    """The variant cannot run here, and this is no failure; the message is the reason."""


def execute(
    variant: Variant,
    cluster: ClusterSpec | None = None,
    *,
    folder: str | Path,
    scale: float = 1.0,  # share of the full size of the data
    capture: str = "full",  # level and extras, as `parse_capture` reads them
    deadline_s: float | None = None,  # of each step; default: the workload's own, else 300
    facts: Mapping[str, Any] | None = None,  # metadata of the run
    shapes: Mapping[str, Mapping[str, Any]] | None = None,  # named clusters of the environment
    prometheus: Prometheus | None = None,
    opened: Callable[[ClusterSpec], AbstractContextManager[RunningCluster]] = reused_cluster,
    engine: str = DASK,  # what executes the graphs, one of `engines.ENGINES`
) -> Path:
    """Measure one variant once; return the folder of its recording, `folder`/<id>.recording.

    The tail of the recording has the outcome. If Ctrl-C interrupts, the recording is removed.
    """
    return _Execution(
        variant, cluster or ClusterSpec.default(), Path(folder), scale, capture, deadline_s,
        dict(facts or {}), dict(shapes or {}), prometheus or Prometheus.from_environment(), opened,
        engine_named(engine),
    ).run()  # fmt: skip


class _Execution:
    """The state of one execution."""

    def __init__(
        self,
        variant: Variant,
        cluster: ClusterSpec,
        folder: Path,
        scale: float,
        capture: str,
        deadline_s: float | None,
        facts: dict[str, Any],
        shapes: dict[str, Any],
        prometheus: Prometheus,
        opened: Callable[[ClusterSpec], AbstractContextManager[RunningCluster]],
        engine: Engine,
    ) -> None:
        self.variant, self.workload = variant, variant.workload
        self.spec = cluster.merged(_cluster_options(self.workload.cluster, shapes))
        self.spec.check()
        self.fraction, self.capture = check_scale(scale), capture
        self.level, self.extras = parse_capture(capture)
        self.prometheus, self.opened, self.engine = prometheus, opened, engine
        limit = check_seconds(deadline_s, "deadline_s")
        self.deadline_s = limit or self.workload.deadline_s or DEFAULT_DEADLINE_S
        self.facts = facts
        self.id = facts.pop("id", None) or new_id()
        self.writer = RecordingWriter(folder, self.id)
        self.step = "open"
        self.evidence: dict[str, Any] = {}
        self.tail: dict[str, Any] = {}

    def run(self) -> Path:
        self._write_head()
        try:
            outcome, error, trace = self._run_and_classify()
        except KeyboardInterrupt:
            shutil.rmtree(self.writer.path, ignore_errors=True)
            raise
        self.tail.update(
            outcome=outcome,
            error=error,
            traceback=trace,
            phase=self.step if outcome != "ok" else "",
            evidence=self.evidence,
        )
        self.writer.tail(**self.tail)
        return self.writer.path

    def _write_head(self) -> None:
        workload = self.workload
        self.writer.head(
            id=self.id,
            started=wall.time(),
            workload=self.variant.name,
            category=workload.category,
            owner=workload.owner,
            params=self.variant.params,
            description=workload.description,
            version=workload.version,
            source=workload.source,
            source_hash=workload.source_hash,
            extra_units={key: declared_unit(workload.metrics, key)[0] for key in workload.metrics},
            seed=workload.seed,
            scale=self.fraction,
            capture=self.capture,
            deadline_s=self.deadline_s,
            cluster=self.spec.to_dict(),
            **self.engine.facts(),
            **collect_provenance(str(Path(workload.path).parent) if workload.path else "."),
            **self.facts,
        )

    # -- outcomes -----------------------------------------------------------------------------

    def _run_and_classify(self) -> tuple[str, str, str]:
        """Run all steps; return the outcome, the error in one line, and its traceback."""
        outcome = ""
        try:
            self._require_packages()
            if reason := self.engine.refusal(self.variant):
                raise SkipRun(reason)
            with self.opened(self.spec) as cluster:
                self.cluster = cluster
                try:
                    with self.engine.open(cluster) as client:
                        self._run_steps(cluster, client)
                except BaseException as error:
                    outcome = self._classify(error)  # while the scheduler can still be asked
                    raise
        except SkipRun as reason:
            return "skipped", str(reason), ""
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            trace = "".join(traceback.format_exception(error))
            tasks = self.evidence.get("standstill") if isinstance(error, DeadlinePassed) else ""
            line = "; ".join(filter(None, [error_summary(error), tasks]))
            return outcome or self._classify(error), line, trace
        return "ok", "", ""

    def _classify(self, error: BaseException) -> str:
        # Workers that are lost before the workload used them are not lost because of it.
        is_unused = self.step == "warm-up" and "prepare" not in self.workload.steps
        step = "open" if is_unused and isinstance(error, CommClosedError) else self.step
        return classify_error(error, step, lambda: scheduler_responds(self.cluster.client))

    # -- steps --------------------------------------------------------------------------------

    def _require_packages(self) -> None:
        missing = self.variant.missing_packages()
        if missing:
            raise SkipRun(
                f"needs {', '.join(missing)}, not installed here: pip install {' '.join(missing)}"
            )

    def _require_cluster(self, cluster: RunningCluster) -> None:
        max_threads = self.workload.max_threads
        if max_threads is not None and cluster.description["n_threads"] > max_threads:
            raise SkipRun(
                f"its data are large enough for {max_threads} threads at most; the cluster has "
                f"{cluster.description['n_threads']}"
            )
        features = {
            "adaptive": hasattr(cluster.cluster, "adapt"),
            "scale": hasattr(cluster.cluster, "scale"),
            "nanny": cluster.description["nannies"],
        }
        missing = [name for name in self.workload.features if not features.get(name, True)]
        if missing:
            raise SkipRun(f"needs a cluster with {', '.join(missing)}: {self.spec.label}")

    def _run_steps(self, cluster: RunningCluster, workload_client: Any) -> None:
        client = cluster.client
        self.tail["cluster"] = cluster.description
        self._require_cluster(cluster)
        scale = Scale.of(client, self.fraction)
        available: dict[str, Any] = {
            "client": workload_client,
            "scale": scale,
            "seed": self.workload.seed,
            **self.variant.params,
        }
        self.tail["sizes"] = {"memory": scale.memory, "threads": scale.threads}
        try:
            available["prepared"] = self._run_step("prepare", client, available)
            self.step = "warm-up"
            self._warm_up(client)
            result = self._run_timed(client, available)
            available["result"] = result
            extra = self._run_step("check", client, available)
            if extra:
                self.tail["extra_metrics"] = {k: float(v) for k, v in dict(extra).items()}
                self.tail["own_metrics"] = {
                    name: own_metric(name, value, *declared_unit(self.workload.metrics, name))
                    for name, value in self.tail["extra_metrics"].items()
                    if math.isfinite(value) and name.isidentifier()
                }
        finally:
            failed = sys.exc_info()[0] is not None
            step, self.step = self.step, "cleanup"
            try:
                with deadline(min(self.deadline_s, 60.0), "cleanup"):
                    self.workload.call("cleanup", **available)
            except Exception as error:
                if not failed:
                    raise
                self.evidence["cleanup"] = error_summary(error)  # the outcome is the first error's
            if failed:
                self.step = step
        self.step = ""

    def _run_step(self, step: str, client: Any, available: dict[str, Any]) -> Any:
        self.step = step
        begin = wall.perf_counter()
        try:
            with deadline(self.deadline_s, step, evidence=lambda: self._gather_evidence(client)):
                return self.workload.call(step, **available)
        finally:
            self.tail[f"{step}_seconds"] = wall.perf_counter() - begin

    def _warm_up(self, client: Any) -> None:
        """Import large packages of the client and of the workload, so that no task has to."""
        large = ("numpy", "pandas", "pyarrow", "dask.array", "dask.dataframe", "xarray")
        loaded = {*sys.modules, *names_used(self.workload.main)}  # it imports inside its function
        names = [*(name for name in large if name in loaded), *self.workload.requires]
        import_all = _importer(names)
        # Importing pandas on a busy machine can take longer than a short deadline.
        with deadline(max(self.deadline_s, 60.0), "warm-up"):
            import_all()
            client.run(import_all)

    def _run_timed(self, client: Any, available: dict[str, Any]) -> Any:
        name = f"benchkit-{self.id}"
        observer = Observer(client, self.writer, name, level=self.level, engine=self.engine)
        with (
            collect_extras(client, self.extras, self.writer.path, observer.errors.append),
            record_prometheus(client, self.prometheus, observer, self.writer),
        ):
            return self._run_observed(client, available, observer)

    def _run_observed(self, client: Any, available: dict[str, Any], observer: Observer) -> Any:
        observer.install()
        gc.collect()  # so that no garbage of earlier steps is collected while the clock is on
        self.step = "workload"
        try:
            try:
                with deadline(
                    self.deadline_s, "workload", evidence=lambda: self._gather_evidence(client)
                ):
                    observer.clock_on()
                    begin = wall.perf_counter()
                    result = self.engine.wait(self.workload.call("run", **available))
                    self.tail["client_seconds"] = wall.perf_counter() - begin
                    observer.clock_off()
            except BaseException:
                observer.clock_off()
                with suppress(Exception):
                    self._gather_logs(client)
                raise
        finally:
            observer.uninstall()
            self.tail.update(observer.tail())
        return result

    # -- evidence -----------------------------------------------------------------------------

    def _gather_evidence(self, client: Any) -> None:
        """Save call stacks, task states and a cluster dump in the recording."""
        self.evidence |= {
            "stacks": stacks_of(client),
            "standstill": describe_unfinished_tasks(client),
        }
        call_with_timeout(lambda: dump_cluster(client, self.writer.path))

    def _gather_logs(self, client: Any) -> None:
        logs = call_with_timeout(lambda: client.get_worker_logs(n=LOG_LINES), 5.0)
        if isinstance(logs, dict):
            self.tail["logs"] = {
                address: [list(line) for line in lines if line[0] not in ("DEBUG", "INFO")]
                for address, lines in logs.items()
                if not isinstance(lines, str)
            }


def _cluster_options(
    declared: str | Mapping[str, Any] | None, shapes: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return the cluster options of a workload: its own, or a named shape of the environment."""
    if not isinstance(declared, str):
        return declared
    if declared not in shapes:
        raise UsageError(
            f"the workload needs a cluster shape {declared!r}, which the environment does not "
            f"define: add it under `clusters:`{' next to ' + ', '.join(shapes) if shapes else ''}"
        )
    return shapes[declared]


def _importer(names: list[str]) -> Callable[[], None]:
    # A nested function is pickled by value: workers need not have benchkit.
    def import_all() -> None:
        from importlib import import_module

        for name in names:
            try:
                import_module(name)
            except ImportError:
                pass  # the workload itself raises the error

    return import_all
