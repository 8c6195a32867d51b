"""Page of a running experiment."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers.dashboards import served
from helpers.running_experiment import EXPERIMENT as RUNNING
from helpers.running_experiment import arm_run
from playwright.sync_api import expect

from benchkit.experiment.run.status import Status
from benchkit.show.dashboard import live
from benchkit.store.store import Store
from validation.dashboard_server import HOSTILE, open_page, sees, with_record

EXPERIMENT = "01a20f7d-3ece-729d-98cf-2e770a0e00d3"


@pytest.fixture
def store(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    store.create()
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    return store


def status(n_runs=2):
    """Return a stopped experiment with one measurement done and one planned."""
    names = ["block", "variant", "arm", "state", "run", "outcome", "duration"]
    rows = [
        (0, "tests.sum", "main", "done", "", "ok", 1.0),
        (0, "tests.sum", "new", "planned", "", "", None),
    ]
    runs = pd.DataFrame({"id": range(n_runs)})
    return Status(EXPERIMENT, {}, pd.DataFrame(rows, columns=names), runs, False, 60.0)


def count_calls(monkeypatch, name, answer):
    calls = []

    def counted(*given, **named):
        calls.append(given)
        return answer() if callable(answer) else answer

    monkeypatch.setattr(live, name, counted)
    return calls


def test_live_status_is_shared_by_sessions(store, monkeypatch):
    read = count_calls(monkeypatch, "read_status", status)

    for _ in range(3):
        live._content({"experiment": EXPERIMENT}, [])

    assert len(read) == 1


def test_live_verdicts_are_cached_until_next_run(store, monkeypatch):
    class Comparison:
        frame = pd.DataFrame()

    compared = count_calls(monkeypatch, "compare_experiment", Comparison)

    for n_runs in (2, 2, 3, 3):
        live._interim(status(n_runs))

    assert len(compared) == 2


def test_live_shows_resume_command():
    _, resume = live._head(status())

    assert f"<code>benchkit ab --resume {EXPERIMENT[:13]}</code>" in resume.object


@pytest.fixture
def following(own_store, page):
    """Yield the URL of a server that opens with the experiment in progress."""
    with served(own_store.path, "--follow", RUNNING[:13], page=page) as url:
        yield url


@pytest.mark.browser
@pytest.mark.slow
def test_live_page_follows_experiment_to_end(page, following, own_store, a_run, artifacts):
    open_page(page, following)
    sees(page, "running")
    sees(page, "Now: tests.sum in new, block 2")
    sees(page, "Verdicts so far (interim)")
    sees(page, "<script>")
    page.screenshot(path=artifacts / "dashboard-follow.png", full_page=True)

    own_store.add(arm_run(a_run, "new", 2))
    own_store.add(with_record(arm_run(a_run, "main", 0), workload=HOSTILE))
    shutil.rmtree(Path(own_store.path, "tmp", "recordings", RUNNING))

    expect(page.get_by_text("ended", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="Verdicts", exact=True)).to_be_visible()
    open_page(page, f"{following.partition('?')[0]}?view=follow&experiment=nothing")
    sees(page, "This experiment cannot be shown")
