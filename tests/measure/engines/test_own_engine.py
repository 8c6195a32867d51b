"""An engine that benchkit does not ship is one class: a small one here, and Ray's of the docs."""

import re
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest

from benchkit.measure import engines, workload
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.engines.engine import Engine
from benchkit.measure.engines.graph import Submission, SubmittedTask
from benchkit.measure.engines.tables import Task, task_tables
from benchkit.measure.recording import Recording
from benchkit.measure.runner import execute
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "add-engine.md"
SPEC = ClusterSpec(kwargs={"n_workers": 1, "threads_per_worker": 1, "memory_limit": "4 GiB"})


class Result:
    def __init__(self, key, value):
        self.key, self.value = key, value


class EagerClient:
    """Computes at once what it is given."""

    def __init__(self):
        self.tasks, self.submissions = [], []

    def submit(self, function, *args):
        key = f"{function.__name__}-{len(self.tasks)}"
        dependencies = [each.key for each in args if isinstance(each, Result)]
        begin = time.time()
        value = function(*(each.value if isinstance(each, Result) else each for each in args))
        self.tasks.append(Task(key, 0, 0, begin, time.time()))
        submitted = SubmittedTask(key, dependencies, 0)
        self.submissions.append(Submission(begin, begin, [submitted], [key]))
        return Result(key, value)


class Eager(Engine):
    """Computes in the process of the client."""

    name = "eager"
    client_methods = {"submit": frozenset()}  # noqa: RUF012 (as engines declare it)
    imports = frozenset()
    unreported = ("sizes of results",)

    @contextmanager
    def open(self, cluster):
        self.client = EagerClient()
        yield self.client

    def wait(self, result):
        return result.value

    def tables(self, path, t_on, client_ahead):
        assert abs(client_ahead) < 0.1  # one machine has one clock
        return task_tables(Recording.read(path), self.client.tasks, self.client.submissions)


def add_engine(monkeypatch, cls):
    module = f"{engines.__name__}.{cls.name}"
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{cls.__name__: cls}))
    place = engines._Place(cls.name, cls.__name__)
    monkeypatch.setitem(engines.ENGINES, cls.name, place)


def measure(function, engine, folder):
    (variant,) = workload(category="t")(function).variants()
    return Run(run_from_recording(execute(variant, SPEC, folder=folder, engine=engine)))


def nap(seconds):
    time.sleep(0.1 * seconds)
    return seconds + 1


def test_own_engine_is_captured_to_the_task(tmp_path, monkeypatch):
    add_engine(monkeypatch, Eager)

    def naps(client):
        return client.submit(nap, client.submit(nap, client.submit(nap, 1)))

    run = measure(naps, "eager", tmp_path)

    assert run.outcome == "ok", run.error
    assert run.tree.attrs["engine"] == "eager"
    assert run.metrics["n_tasks"] == 3
    durations = run.task_stream()["duration"]  # a busy machine adds some ms to each
    assert ((durations >= [0.1, 0.2, 0.3]) & (durations < [0.15, 0.3, 0.45])).all()
    assert run.metrics["compute_time"] == pytest.approx(durations.sum())
    # Tasks end with the clock, and the clock of the client is known to a millisecond.
    assert run.limits().bounds["critical path"] == pytest.approx(durations.sum(), rel=0.02)
    assert "the engine eager does not report sizes of results" in str(run.tree.attrs["quality"])
    assert run.metrics["client_memory_peak"] > 0


def test_own_engine_refuses_what_its_client_lacks(tmp_path, monkeypatch):
    add_engine(monkeypatch, Eager)

    def maps(client):
        return client.map(nap, [1])

    run = measure(maps, "eager", tmp_path)

    assert run.outcome == "skipped"
    assert run.error == "engine eager has no client.map, which the workload uses"


def forget(own):
    own.submissions.clear()


def test_tasks_that_nobody_submitted_leave_the_graph_out(tmp_path, monkeypatch):
    add_engine(monkeypatch, Eager)

    def naps(client):
        result = client.submit(nap, 1)
        forget(client)
        return result

    run = measure(naps, "eager", tmp_path)

    assert run.metrics["n_tasks"] == 1
    assert "submissions" not in run.tree.children


def engine_of_the_page():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {"__name__": "ray_engine"}
    exec(code, names)
    return names["Ray"]


def test_engine_of_the_page_refuses_a_workload_with_a_client():
    def submits(client):
        return client.submit(nap, 1)

    (variant,) = workload(category="t")(submits).variants()

    assert engine_of_the_page()().refusal(variant) == (
        "engine ray has no client.submit, which the workload uses"
    )


@pytest.mark.slow
def test_engine_of_the_page_measures_tasks_in_ray(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="pip install ray")
    add_engine(monkeypatch, engine_of_the_page())

    def naps():
        return dask.delayed(max)([dask.delayed(nap)(1) for _ in range(4)])

    run = measure(naps, "ray", tmp_path)

    assert run.outcome == "ok", run.error
    assert run.metrics["n_tasks"] == 5
    assert 0.4 <= run.metrics["compute_time"] < 0.6
