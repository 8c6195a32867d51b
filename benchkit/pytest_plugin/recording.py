"""Record the blocks of one test as runs. Imports the rest of benchkit when a recording begins."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from benchkit.experiment.record import Recorder
    from benchkit.store.run import Run

#: Property of a report that holds the id of a run.
PROPERTY = "benchkit_run"
#: Fixtures by which a test is recorded.
_RECORDING_FIXTURES = frozenset(
    "auto_benchmark_time benchkit_record benchmark_all benchmark_memory benchmark_task_durations "
    "benchmark_time client small_client".split()
)
#: The configuration of the session, for the conftest.py files and modules that are imported before
#: a fixture is used. Its options are complete only after `pytest_configure`.
SESSION: dict[str, pytest.Config] = {}
_RECORDER = pytest.StashKey["TestRecorder"]()
_EXPERIMENT = pytest.StashKey[str]()


def environment_name(config: pytest.Config) -> str:
    """Return the name of the environment, also while conftest.py files are loaded."""
    option: str | None = config.known_args_namespace.benchkit_environment
    return option or config.getini("benchkit_environment") or "current"


def is_recorded(metafunc: pytest.Metafunc) -> bool:
    """Return whether a test is recorded with `--benchkit`."""
    marked = metafunc.definition.get_closest_marker("benchkit") is not None
    return marked or bool(_RECORDING_FIXTURES & set(metafunc.fixturenames))


def recorder_of(item: pytest.Item, workload: str, repetition: int) -> TestRecorder:
    """Return the recorder of a test, which all its fixtures share."""
    if _RECORDER not in item.stash:
        item.stash[_RECORDER] = TestRecorder(item, workload, repetition)
    return item.stash[_RECORDER]


class TestRecorder:
    """Records blocks of a test; nested blocks are one run."""

    __test__ = False

    def __init__(self, item: pytest.Item, workload: str, repetition: int) -> None:
        self.item, self.workload, self.repetition = item, workload, repetition
        self.enabled = bool(item.config.option.benchkit)
        self.client: Any = None
        self._open: Recorder | _Stopwatch | None = None
        self._count = 0

    def client_of_test(self) -> Any:
        """Return the client among the fixtures of the test."""
        distributed = sys.modules.get("distributed")
        values = getattr(self.item, "funcargs", {}).values()
        if distributed is None:
            return None
        return next((value for value in values if isinstance(value, distributed.Client)), None)

    @contextmanager
    def block(self, client: Any = None, *, needs_client: bool = False) -> Iterator[Any]:
        """Record a block, unless a recording of the test is open."""
        recorder = self.begin(client or self.client_of_test(), needs_client=needs_client)
        if recorder is None:
            yield None
            return
        try:
            yield recorder
        except BaseException as error:
            self.end(error)
            raise
        self.end(None)

    def begin(self, client: Any, *, needs_client: bool = False) -> Any:
        """Begin a recording, unless one is open or recording is off."""
        if not self.enabled or self._open is not None:
            return None
        from distributed import Client, default_client

        from benchkit.errors import UsageError
        from benchkit.experiment.record import record

        if client is None and not needs_client:
            try:
                client = default_client()
            except ValueError:
                self._open = _Stopwatch(self)
                return self._open
        self._count += 1
        options = self.item.config.option
        try:
            recorder = record(
                client,
                workload=self.name,
                store=options.benchkit_store,
                environment=options.benchkit_environment,
                experiment=self.experiment,
                arm=options.benchkit_environment,
                block=self.repetition,
            )
        except UsageError as error:
            hint = "a test that creates its client uses `with benchkit_record(client):`"
            pytest.fail(f"{error}; {hint}", pytrace=False)
        assert isinstance(recorder.client, Client)
        self._open = recorder.__enter__()
        return recorder

    def end(self, error: BaseException | None) -> None:
        """End the open recording, if there is one, and store its run."""
        recorder, self._open = self._open, None
        if recorder is None:
            return
        recorder.__exit__(type(error) if error else None, error, None)
        if recorder.run is not None:
            self.item.user_properties.append((PROPERTY, recorder.run.id))

    def metric(self, name: str, value: float, *, unit: str = "1", better: str = "") -> None:
        """Add a metric of your own to the open recording, as `Recorder.metric` does."""
        if self._open is not None:
            self._open.metric(name, value, unit=unit, better=better)

    @property
    def name(self) -> str:
        """Workload of the next run."""
        return self.workload if self._count < 2 else f"{self.workload}#{self._count}"

    @property
    def experiment(self) -> str:
        """Id of the experiment: all runs of one session of pytest."""
        stash = self.item.config.stash
        if _EXPERIMENT not in stash:
            from benchkit.measure.run_ids import new_id

            stash[_EXPERIMENT] = new_id()
        return stash[_EXPERIMENT]


class _Stopwatch:
    """Stores the time and outcome of a block that uses no cluster."""

    def __init__(self, recorder: TestRecorder) -> None:
        recorder._count += 1
        self.recorder = recorder
        self.run: Run | None = None
        self.own: dict[str, dict[str, Any]] = {}
        self.started, self.clock = time.time(), time.perf_counter()

    def metric(self, name: str, value: float, *, unit: str = "1", better: str = "") -> None:
        """Add a metric of your own."""
        from benchkit.measure.arguments import own_metric

        self.own[name] = own_metric(name, value, unit, better)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        duration = time.perf_counter() - self.clock
        from datetime import datetime, timezone

        import dask
        import distributed

        from benchkit.measure.errors import error_summary
        from benchkit.measure.outcomes import RECORDED_STEP, classify_error
        from benchkit.measure.provenance import collect_provenance
        from benchkit.measure.run_ids import new_id
        from benchkit.store.interchange.coiled import run_tree
        from benchkit.store.run import Run
        from benchkit.store.store import Store

        options, facts = self.recorder.item.config.option, collect_provenance()
        outcome = classify_error(error, RECORDED_STEP, lambda: True) if error else "ok"
        record: dict[str, Any] = {
            "id": new_id(),
            "workload": self.recorder.name,
            "category": self.recorder.name.partition("::")[0],
            "params": "{}",
            "version": 1,
            "environment": options.benchkit_environment,
            "experiment": self.recorder.experiment,
            "arm": options.benchkit_environment,
            "block": self.recorder.repetition,
            "tags": "{}",
            "started": datetime.fromtimestamp(self.started, timezone.utc).isoformat(
                timespec="microseconds"
            ),
            "outcome": outcome,
            "capture": "off",
            "scale": 1.0,
            "host": facts["host"]["host"],
            "cluster": "none",
            "python": facts["host"]["python"],
            "dask": dask.__version__,
            "distributed": distributed.__version__,
            "packages_hash": facts["packages_hash"],
            "extra_metrics": json.dumps({}),
        }
        if facts["git_commit"]:
            record["git_commit"] = facts["git_commit"]
        if outcome == "ok":
            record["duration"] = duration
        elif error is not None:
            record["error"] = error_summary(error)
        if self.own:
            record |= {name: about.pop("value") for name, about in self.own.items()}
            record["own_metrics"] = json.dumps(self.own)
        tree = run_tree(record)
        Store(options.benchkit_store).add(tree)
        self.run = Run(tree)
