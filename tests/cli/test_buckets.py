"""Commands on a store in a bucket; with the marker `s3` on a real server behind faults."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.dashboards import served

from benchkit.cli.main import benchkit as main
from benchkit.store.store import Store
from validation.dashboard_server import open_page, sees

WORKLOADS = """import time
from benchkit import workload

@workload
def short(client, scale):
    "Add two numbers."
    return client.submit(sum, (1, 2))

@workload
def long(client, scale):
    "Sleep."
    return client.submit(time.sleep, 60)
"""
ENVIRONMENTS = {
    "small": "cluster: {n_workers: 1, threads_per_worker: 1, memory_limit: 512 MiB}\n",
    # A worker in the measuring process starts at once.
    "light": "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n",
}
#: Adds runs, prints the id of each that the store acknowledged, and compacts now and then.
ADD_RUNS = """import sys
from validation.synthetic_runs import make_run
from benchkit.store.store import Store
store = Store(sys.argv[1])
for number in range(int(sys.argv[2])):
    print(store.add(make_run(groups=False)), flush=True)
    if number % 5 == 4:
        store.compact()
"""
COMPACT = """import sys
from pathlib import Path
from benchkit.store.store import Store
store = Store(sys.argv[1])
while not Path(sys.argv[2]).exists():
    store.compact()
"""


@pytest.fixture
def folder(tmp_path):
    """Return a working folder with two workloads and two environments."""
    environments = {f"environments/{name}.yaml": text for name, text in ENVIRONMENTS.items()}
    for name, text in {"workloads/own.py": WORKLOADS, **environments}.items():
        (tmp_path / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "work" / name).write_text(text)
    return tmp_path / "work"


def start(folder, *arguments, **options):
    command = [sys.executable, "-m", "benchkit", *arguments]
    return subprocess.Popen(command, cwd=folder, text=True, **options)


def benchkit(*arguments):
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, f"{arguments}: {done.output}"
    return done.stdout


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(1200)
def test_commands_work_on_a_real_server(real_bucket, folder, browser, monkeypatch):
    monkeypatch.chdir(folder)
    store = ("--store", real_bucket)
    measured = ("own.short", "-e", "light", *store, "-q")

    benchkit("run", *measured, "-n", "2")
    (page,) = json.loads(benchkit("report", "run", "latest", *store, "--json"))
    # Not the memory: that of a worker in the measuring process grows from run to run.
    times = ("--metric", "duration")
    benchkit("ab", "light", "own.short", "--null-only", *times, *store, "-q", "-n", "2")
    arms = (
        "--baseline",
        "experiment:latest,arm:light",
        "--contender",
        "experiment:latest,arm:null",
    )
    benchkit("compare", *arms, *store)
    benchkit("nightly", *measured, "--no-confirm", "--output", "out", "--publish", "site")
    benchkit("regressions", *store)
    benchkit("mark", "exclude", "latest", "--reason", "test", *store)
    benchkit("store", "compact", *store)
    assert "healthy" in benchkit("store", "check", *store)
    benchkit("store", "copy", real_bucket, "copy")

    assert Path(page["report"]).stat().st_size > 10_000
    made = {"workloads", "environments", "out", "site", "copy"}
    assert {path.name for path in folder.iterdir()} == made
    stored = Store(real_bucket)
    assert len(stored) == len(Store(folder / "copy")) == 7
    names = [name.split("/", 2)[2] for name in stored.files.walk("experiments")]
    assert names.count("plan.json") == 3
    assert names.count("kernel-light.log") == 3
    assert sum(name.endswith(".ipynb") for name in names) == 7 + 2  # measured, and reports
    reports = {Path(page["report"]).name, "ab.html", "ab.md", "ab.json"}
    assert reports <= {name.rpartition("/")[2] for name in names}
    # The runs from before the night are a night that was not judged yet.
    assert {event["kind"] for event in stored.events()} == {"night"}

    monkeypatch.setenv("BENCHKIT_CACHE", str(folder / "elsewhere"))  # as on another machine
    page = browser.new_page()
    with served(real_bucket, page=page) as url:
        open_page(page, f"{url}?view=runs")
        sees(page, "own.short")
        open_page(page, f"{url}?view=run&id={stored.ids()[0]}")
        sees(page, "own.short")
    page.close()


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_measurement_becomes_a_run(real_bucket, folder):
    store = ("--store", real_bucket)
    process = start(folder, "run", "own.long", "-e", "small", *store, start_new_session=True)
    recordings = Path(os.environ["BENCHKIT_CACHE"])
    until = time.monotonic() + 200
    while not list(recordings.glob("stores/*/work/tmp/recordings/*/*.recording/000002.json")):
        assert time.monotonic() < until
        time.sleep(0.2)

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(Store(real_bucket)) == 0
    time.sleep(6)  # the recording of a dead writer is left to its parent for 5 s

    report = Store(real_bucket).check()
    assert len(report.rescued) == 1
    (run,) = Store(real_bucket)
    assert (run.workload, run.outcome) == ("own.long", "infrastructure")


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eight_processes_add_while_two_compact(real_bucket, rados_gateway, tmp_path):
    helpers = str(Path(__file__).parents[1])
    path = os.pathsep.join([helpers, os.environ.get("PYTHONPATH", "")])

    def python(script, *arguments):
        command = [sys.executable, "-c", script, real_bucket, *arguments]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **options)

    before = rados_gateway.counts.copy()
    compactors = [python(COMPACT, str(tmp_path / "stop")) for _ in range(2)]
    writers = [python(ADD_RUNS, "12") for _ in range(8)]
    added: list[str] = []
    for writer in writers:
        out, err = writer.communicate(timeout=600)
        assert writer.returncode == 0, err
        added += out.split()
    (tmp_path / "stop").touch()
    for compactor in compactors:
        _, err = compactor.communicate(timeout=200)
        assert compactor.returncode == 0, err

    store = Store(real_bucket)
    assert len(added) == 8 * 12
    assert sorted(store.ids()) == sorted(added)
    report = store.check()
    assert (report.runs, report.healthy, report.adopted) == (8 * 12, True, [])
    injected = rados_gateway.counts - before
    assert all(injected[kind] > 0 for kind in ("unavailable", "reset", "lost"))
