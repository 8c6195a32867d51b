"""Contents of a store after its writers were killed, or after its disk was full."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchkit.store.store import Store

HERE = Path(__file__).parent
PREAMBLE = f"""
import json, sys
sys.path[:0] = [{str(HERE.parents[1])!r}, {str(HERE.parent)!r}]
from validation.synthetic_runs import make_run
from benchkit.errors import StoreError
from benchkit.store.store import Store
store = Store(sys.argv[1])
"""
#: Forks a process for each line of its input and prints its PID, because a fork starts fast. A
#: writer adds runs until it is killed and writes down the id of each added run; a compactor
#: compacts.
FORK_SERVER = f"""{PREAMBLE}
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
Store(sys.argv[2]).add(make_run(n_samples=5, n_tasks=5))  # imports all modules that forks need
for line in sys.stdin:
    if pid := os.fork():
        print(pid, flush=True)
        continue
    store = Store(sys.argv[1])
    while line.split() == ["compact"]:
        store.compact()
    with open(line.strip(), "a") as confirmed:
        while True:
            confirmed.write(store.add(make_run(n_samples=5, n_tasks=5)) + "\\n")
            confirmed.flush()
"""
#: Adds runs until a write fails.
FILLER = f"""{PREAMBLE}
added, error = [], None
while error is None:
    run = make_run(groups=len(added) % 2 > 0)
    try:
        added.append(store.add(run))
    except StoreError as trouble:
        error = str(trouble)
print(json.dumps({{"added": added, "failed": run.attrs["id"], "error": error}}))
"""


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait(120)


def lines(path):
    """Return the complete lines of a file: the last line may be written in part only."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def wait_for(condition, what):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail(f"timeout after a minute: {what}")


@pytest.mark.slow
def test_killed_writers_leave_complete_files(tmp_path):
    rng = random.Random(0)
    path, kills, id_files = tmp_path / "store", 0, []
    fork_server = subprocess.Popen(
        [sys.executable, "-c", FORK_SERVER, str(path), str(tmp_path / "first")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def start(what):
        print(what, file=fork_server.stdin, flush=True)
        return psutil.Process(int(fork_server.stdout.readline()))

    with fork_server:
        for _ in range(5):
            compactor = start("compact")
            writers = []
            for _ in range(3):
                id_files.append(tmp_path / f"ids-{len(id_files)}")
                writers.append(start(id_files[-1]))
            for id_file in id_files[-3:]:
                wait_for(lambda id_file=id_file: lines(id_file), "a first run")
            for process in writers:
                time.sleep(rng.random() * 0.15)
                kill(process)
                kills += 1
            kill(compactor)  # also in the middle of an operation

    confirmed = {run_id for id_file in id_files for run_id in lines(id_file)}
    store = Store(path)
    assert kills == 15
    assert len(confirmed) >= kills
    assert confirmed <= set(store.ids())

    report = store.check()
    assert report.healthy, report
    assert report.strangers == []
    assert report.damaged_index == []
    frame = store.runs(columns=["id"])
    assert frame["id"].is_unique
    assert len(frame) == report.runs
    for run_id in frame["id"]:
        assert store.open(run_id).tree["workers/process"].shape == (5, 2)
    before = store.runs()
    store.compact()
    assert store.runs().equals(before)


@pytest.fixture
def small_disk(tmp_path):
    """Yield a folder on a 1 MB disk (a tmpfs, else a file size limit) and how to enforce it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0:
        yield folder, None, "No space left on device"
        subprocess.run(["umount", str(folder)], check=True)
    else:
        yield folder, _limit_files, "File too large"


def _limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))


def fill(folder, limit):
    done = subprocess.run(
        [sys.executable, "-c", FILLER, str(folder)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def assert_filled_store_is_whole(folder, outcome, message):
    store = Store(folder / "store", create=False)
    assert message in outcome["error"]
    assert "\n" not in outcome["error"]
    assert outcome["added"]
    assert store.files.list("tmp") == []
    assert set(store.ids()) == set(outcome["added"])
    report = store.check(repair=False)
    assert report.unreadable == report.strangers == report.missing == report.damaged_index == []
    # The last run's file may have fit on the disk although its line in the index did not.
    assert set(report.orphans) <= {outcome["failed"]}


def test_full_disk_raises_one_line_and_leaves_complete_files(small_disk):
    folder, limit, message = small_disk

    outcome = fill(folder / "store", limit)

    assert_filled_store_is_whole(folder, outcome, message)


def test_file_size_limit_raises_and_leaves_complete_files(tmp_path):
    outcome = fill(tmp_path / "store", _limit_files)

    assert_filled_store_is_whole(tmp_path, outcome, "File too large")
