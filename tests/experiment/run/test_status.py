"""Progress of an experiment whose store is in a bucket, seen from another machine."""

import json
import time
from datetime import datetime, timezone

import pytest

from benchkit.experiment.run import status as module
from benchkit.experiment.run.plan import plan_name
from benchkit.experiment.run.status import latest_running, read_status
from benchkit.measure.run_ids import new_id
from benchkit.show.dashboard import live
from benchkit.show.dashboard.state import cache
from benchkit.store.store import Store
from validation.dashboard_server import with_record
from validation.synthetic_runs import make_run

DEADLINE_S = 60.0


@pytest.fixture
def experiment(bucket, monkeypatch, tmp_path):
    """Return the id of an experiment with one of two measurements done on another machine."""
    store, experiment = Store(bucket), new_id()
    keys = ("order", "block", "variant", "arm", "deadline_s")
    plan = [(0, 0, "tests.sum", "main", DEADLINE_S), (1, 0, "tests.sum", "new", DEADLINE_S)]
    entries = [dict(zip(keys, entry, strict=True)) for entry in plan]
    started = time.time() - 30
    content = {"words": {"command": "ab main new"}, "started": started, "plan": entries}
    store.create()
    store.files.create(plan_name(experiment), json.dumps(content).encode())
    facts = {"experiment": experiment, "arm": "main", "block": 0, "workload": "tests.sum"}
    ended = datetime.fromtimestamp(started + 20, timezone.utc).isoformat()
    store.add(with_record(make_run(groups=False), started=ended, duration=10.0, **facts))
    monkeypatch.setenv("BENCHKIT_CACHE", str(tmp_path / "elsewhere"))
    return experiment


def test_status_in_a_bucket_is_running_until_a_run_is_overdue(bucket, experiment, monkeypatch):
    store = Store(bucket)

    status = read_status(store)
    assert (status.id, status.alive) == (experiment, True)
    assert list(status.entries["state"]) == ["done", "planned"]
    assert latest_running(store) == experiment

    limit = read_status(store).runs["started"].item().timestamp() + 10 + DEADLINE_S + module.START_S
    monkeypatch.setattr(module.time, "time", lambda: limit - 1)
    assert read_status(store).alive
    monkeypatch.setattr(module.time, "time", lambda: limit + 1)
    assert not read_status(store).alive
    assert latest_running(store) == ""


def test_status_in_a_bucket_ends_with_published_logs(bucket, experiment):
    store = Store(bucket)
    store.files.create(f"experiments/{experiment}/kernel-main.log", b"")

    assert not read_status(store).alive
    assert latest_running(store) == ""


def test_status_in_a_bucket_without_experiment_is_not_running(bucket):
    store = Store(bucket)
    store.create()

    assert latest_running(store) == ""


def test_live_page_shows_experiment_of_another_machine(bucket, experiment, monkeypatch):
    monkeypatch.setenv("BENCHKIT_STORE", bucket)
    cache._store.clear()

    make, _ = live._content({}, [])
    head, *rest = make()

    assert experiment[:13] in head.object
    assert "running" in head.object
    assert "benchkit ab main new" in head.object
    assert not any("stopped before its end" in str(getattr(part, "object", "")) for part in rest)
