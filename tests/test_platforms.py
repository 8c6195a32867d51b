"""What Windows and macOS lack: a run without it, and each use of it that has a guard."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Names of the standard library that are absent on Windows.
POSIX_ONLY = re.compile(
    r"\bos\.(fork|killpg|getpgid|setsid|geteuid|getuid|mkfifo|uname|sysconf|nice|fchmod|statvfs)\b"
    r"|\bsignal\.(SIGKILL|SIGSTOP|SIGCONT|SIGHUP|SIGALRM|SIGUSR1|setitimer|pthread_kill)\b"
    r"|\bimport (fcntl|resource|pwd|grp|termios|pty)\b|[\"']/(proc|sys|dev)/"
)
#: Files that use such names, each behind a guard; the tests of the guards are named here.
GUARDED = {
    "experiment/run/kernel.py": "test_kernel_kill_without_process_groups_ends_children",
    "measure/capture/memory_sampler.py": "test_sampler_works_without_sysconf",
    "measure/capture/process.py": "test_reason_is_given_where_nothing_is_counted",
    "measure/capture/worker_plugin.py": "test_run_is_stored_without_posix",
    "measure/data/dataset.py": "test_run_is_stored_without_posix",
    "measure/deadline.py": "test_run_is_stored_without_posix",
    "measure/provenance.py": "test_run_is_stored_without_posix",
    "store/interchange/netcdf.py": "test_import_netcdf_works_without_limits",
}


def benchkit(*words, cwd, **variables):
    helper = ROOT / "tests" / "helpers" / "without_posix"
    variables["DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD"] = "spawn"  # no forks there
    environment = {**os.environ, "PYTHONPATH": f"{helper}{os.pathsep}{ROOT}", **variables}
    return subprocess.run(
        [sys.executable, "-m", "benchkit", *words],
        cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=280,
    )  # fmt: skip


def test_each_use_of_posix_has_a_guard_and_a_test():
    package = ROOT / "benchkit"
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if POSIX_ONLY.search(re.sub(r'(?s:""".*?""")|#.*', "", path.read_text("utf-8")))
    }
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))

    assert users == set(GUARDED)
    assert [name for name in GUARDED.values() if f"def {name}" not in tests] == []


@pytest.mark.slow
def test_run_is_stored_without_posix(tmp_path):
    temporary = tmp_path / "temporary"
    host = re.sub(r"\W", "_", socket.gethostname())
    left = temporary / f"benchkit-{host}-999999999-a"
    left.mkdir(parents=True)  # as a killed process leaves it
    words = ["run", "sched.task_throughput[n=1000]", "--scale", "0.2", "--store", "store"]
    done = benchkit(*words, cwd=tmp_path, TMPDIR=str(temporary))
    checked = benchkit("store", "check", "--store", "store", cwd=tmp_path)

    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"^sched\.task_throughput\[n=1000\] +ok ", done.stdout, re.MULTILINE)
    assert checked.stdout == "1 run, healthy\n"
    assert not left.exists()


def test_output_in_a_code_page_replaces_other_characters(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchkit", "run", "ⓘ▼"],
        cwd=tmp_path, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "cp1252"},
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith(b"error: no workload named '??'")
