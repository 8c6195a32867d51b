"""Measure one test of pytest: its fixtures before the clock, its call as the timed step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client, default_client

from benchkit.measure.cluster.description import describe
from benchkit.measure.cluster.reuse import reused_cluster
from benchkit.measure.cluster.running import RunningCluster
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.engines import DASK
from benchkit.measure.errors import UsageError
from benchkit.measure.runner import execute
from benchkit.measure.suite.collect import (
    InProcess,
    TestWorkload,
    error_line,
    node_arguments,
    run_pytest,
)
from benchkit.measure.workloads import Variant

#: Name under which the plugin of pytest is registered that measures a test.
PLUGIN_NAME = "benchkit-arm"


@dataclass(frozen=True)
class ArmEnvironment:
    """The parts of the measured environment that the fixtures of benchkit need."""

    # cluster, clusters: Class and options of the cluster, and named shapes.
    cluster: Mapping[str, Any]
    clusters: Mapping[str, Mapping[str, Any]]
    # Empty: the process has the configuration of the environment.
    dask: Mapping[str, Any] = field(default_factory=dict)
    engine: str = DASK  # Of the clients of fixtures; tests are measured in no other


def execute_test(
    node_id: str, suites: Sequence[str | Path], environment: ArmEnvironment, **options: Any
) -> Path:
    """Measure one test once and write a recording.

    The cluster is that of a client among the fixtures, of the current client, or that of the
    environment. A fixture or a file that fails is a run that fails before its clock.
    """
    arguments = node_arguments(node_id, suites)
    arm = _Arm(environment, partial(_execute, environment, options))
    try:
        code, text = run_pytest(arguments, arm)
        print(text)
    except UsageError as error:
        code, text, arm.error = 0, "", error
    if isinstance(arm.error, KeyboardInterrupt):
        raise arm.error
    if arm.recording is None:
        reason = arm.error or UsageError(f"pytest ended with code {code}: {error_line(text)}")
        failing = _failing(reason)
        workload = TestWorkload.of(node_id, failing, steps={"prepare": failing})
        return _execute(environment, options, workload)
    return arm.recording


def _execute(
    environment: ArmEnvironment,
    options: Mapping[str, Any],
    workload: TestWorkload,
    item: Any = None,
) -> Path:
    spec = ClusterSpec.from_dict(environment.cluster)
    opened = partial(_cluster_of_test, item)
    variant = Variant(workload, {})
    return execute(variant, spec, shapes=environment.clusters, opened=opened, **options)


def _failing(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@contextmanager
def _cluster_of_test(item: Any, spec: ClusterSpec) -> Iterator[RunningCluster]:
    client = _client_of_test(item)
    if client is None:
        with reused_cluster(spec) as cluster:
            yield cluster
    else:
        yield RunningCluster(client, client.cluster, describe(client, "as found"))


def _client_of_test(item: Any) -> Client | None:
    for value in getattr(item, "funcargs", {}).values():
        if isinstance(value, Client):
            return value
    try:
        client: Client = default_client()
        return client
    except ValueError:
        return None


class _Arm(InProcess):
    """Plugin of pytest that measures the call of the test."""

    def __init__(self, environment: ArmEnvironment, measure: Callable[..., Path]) -> None:
        self.__name__ = PLUGIN_NAME
        self.environment, self.measure = environment, measure
        self.recording: Path | None = None
        self.error: BaseException | None = None

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in items:
            item.runtest = partial(self._measured, item, item.runtest)

    def _measured(self, item: Any, runtest: Callable[[], Any]) -> None:
        if self.recording is not None:
            return

        def call() -> None:
            runtest()
            # A test of unittest keeps its errors instead of raising them.
            for failure in getattr(item, "_excinfo", None) or ():
                raise failure.value

        workload = TestWorkload.of(item.nodeid, item.function, steps={"run": call})
        self.recording = self.measure(workload, item)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.excinfo is not None:
            self.error = self.error or call.excinfo.value

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.error = UsageError(error_line(report.longreprtext))

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        self.error = excinfo.value
