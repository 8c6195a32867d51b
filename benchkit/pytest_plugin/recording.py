"""Record the blocks of one test as runs. Imports the rest of benchkit when a recording begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
        self.run: Run | None = None  # The last run; None if recording is off
        self.open: Recorder | None = None
        self._count = 0

    def block(self, client: Any = None, *, is_call: bool = False) -> _Block:
        """Return a context manager, of both kinds, that records unless a recording is open.

        The block of the call of the test ends a recording that a fixture began.
        """
        return _Block(self, client, is_call)

    def begin(self, client: Any, *, in_loop: bool) -> Recorder | None:
        """Return the recorder to enter: of this client, of that of the test, or of the first one.

        None if a recording is open or recording is off.
        """
        if not self.enabled or self.open is not None:
            return None
        import distributed

        from benchkit.experiment.record import record
        from benchkit.measure.engines import engine_of

        config = self.item.config
        options = config.option
        if client is None:
            arguments = (self.client, *getattr(self.item, "funcargs", {}).values())
            found = [value for value in arguments if isinstance(value, distributed.Client)]
            with suppress(ValueError):
                found.append(distributed.default_client())
            # In a plain `with` the event loop of an asynchronous client may stand still.
            usable = (each for each in found if in_loop or not each.asynchronous)
            client = self.client if engine_of(self.client) else next(usable, "first")
        self._check_engine(client, options.benchkit_environment)
        self._count += 1
        n_processes = getattr(config, "workerinput", {}).get("workercount", 1)
        self.open = record(
            client,
            workload=self.name,
            tags={"parallel": n_processes} if n_processes > 1 else None,
            store=options.benchkit_store,
            environment=options.benchkit_environment,
            experiment=experiment_id(config),
            arm=options.benchkit_environment,
            block=self.repetition,
        )
        return self.open

    def _check_engine(self, client: Any, environment: str) -> None:
        """Skip a test whose client is not that of the engine of its environment."""
        from benchkit.errors import BenchkitError
        from benchkit.measure.engines import DASK, engine_of
        from benchkit.pytest_plugin.clusters import session_environment

        engine = DASK
        with suppress(BenchkitError):  # for a client of its own the environment is a name
            engine = session_environment(environment).engine
        if engine != DASK and engine_of(client) is None:
            pytest.skip(
                f"engine {engine}: the test has a client of its own, of Dask: take that of the "
                "fixture client or small_client"
            )

    def keep(self, recorder: Recorder) -> None:
        """Keep the run of a recording that has ended."""
        self.run = recorder.run
        if self.run is not None:
            self.item.user_properties.append((PROPERTY, self.run.id))

    def metric(self, name: str, value: float, *, unit: str = "1", better: str = "") -> None:
        """Add a metric of your own to the open recording, as `Recorder.metric` does."""
        if self.open is not None:
            self.open.metric(name, value, unit=unit, better=better)

    def data(self, name: str, dataset: Any) -> None:
        """Add a Dataset of your own to the open recording, as `Recorder.data` does."""
        if self.open is not None:
            self.open.data(name, dataset)

    @property
    def name(self) -> str:
        """Workload of the next run."""
        return self.workload if self._count < 2 else f"{self.workload}#{self._count}"


class _Block:
    """Context manager that `TestRecorder.block` returns."""

    def __init__(self, recorder: TestRecorder, client: Any, is_call: bool) -> None:
        self.recorder, self.client, self.is_call = recorder, client, is_call
        self.recording: Recorder | None = None

    def __enter__(self) -> TestRecorder:
        with _one_line():
            if (begun := self._begin(in_loop=False)) is not None:
                begun.__enter__()
        return self.recorder

    def __exit__(self, *error: Any) -> None:
        if (ended := self._end()) is not None:
            with _one_line():
                ended.__exit__(*error)
            self.recorder.keep(ended)

    async def __aenter__(self) -> TestRecorder:
        with _one_line():
            if (begun := self._begin(in_loop=True)) is not None:
                await begun.__aenter__()
        return self.recorder

    async def __aexit__(self, *error: Any) -> None:
        if (ended := self._end()) is not None:
            with _one_line():
                await ended.__aexit__(*error)
            self.recorder.keep(ended)

    def _begin(self, *, in_loop: bool) -> Recorder | None:
        if self.is_call and self.recorder.open is not None:  # by a fixture: the call knows the end
            self.recording = self.recorder.open
            return None
        self.recording = self.recorder.begin(self.client, in_loop=in_loop)
        return self.recording

    def _end(self) -> Recorder | None:
        is_open = self.recording is not None and self.recorder.open is self.recording
        self.recorder.open = None if is_open else self.recorder.open
        return self.recording if is_open else None


@contextmanager
def _one_line() -> Iterator[None]:
    """Show an error of benchkit as a failure without a traceback."""
    try:
        yield
    except Exception as error:
        from benchkit.measure.errors import BenchkitError

        if not isinstance(error, BenchkitError):
            raise
        # `pytest.fail` would show the tracebacks of the errors before it, too.
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def experiment_id(config: pytest.Config) -> str:
    """Return the id of the experiment: all runs of one session of pytest."""
    given: str | None = getattr(config, "workerinput", {}).get("benchkit_experiment")
    if _EXPERIMENT not in config.stash:
        from benchkit.measure.run_ids import new_id

        config.stash[_EXPERIMENT] = given or new_id()
    return config.stash[_EXPERIMENT]
