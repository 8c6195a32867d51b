"""Commands that a signal ends: exit code, last lines, and nothing that is left."""

import os
import shutil
import signal
import subprocess
import sys
import time
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

import pytest

from benchkit.store.store import Store
from validation.ended_commands import AB, BISECT, NIGHTLY, ROOT, RUN, SECRET, EndedCommand
from validation.synthetic_runs import make_run

#: Small runs, whose copy takes a second.
N_COPIED = 200
CODES = {SIGTERM: 143, SIGHUP: 129, SIGINT: 130, SIGKILL: -9}


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a command; all that is left of it is removed at the end."""
    commands = []

    def start(words, **options):
        commands.append(EndedCommand(words, tmp_path, **options))
        return commands[-1]

    yield start
    for command in commands:
        command.kill()
        shutil.rmtree(command.temporary, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "state", "number", "to_group", "last_line"),
    [
        # `timeout` sends SIGTERM to its child and to its group.
        (RUN, "task", SIGTERM, True, "interrupted: 0 runs stored"),
        (RUN, "worker", SIGTERM, False, "interrupted: 0 runs stored"),
        (RUN, "kernel", SIGHUP, False, "interrupted: 0 runs stored"),
        (RUN, "task", SIGINT, True, "interrupted: 0 runs stored"),
        (AB, "run", SIGTERM, False, "continues"),
        (NIGHTLY, "run", SIGTERM, True, "interrupted: only the finished runs are judged"),
    ],
)  # fmt: skip
def test_signal_ends_measuring_command_and_all_that_it_started(
    start, words, state, number, to_group, last_line
):
    command = start(words)
    command.await_state(state)
    secrets_while_it_runs = command.files_with_secret()
    is_printed = bool(command.files_with_secret(command.temporary))
    for _ in range(3 if number == SIGINT else 1):  # people press Ctrl-C again
        command.send(number, to_group=to_group)
        time.sleep(0.3)
    code = command.await_end()

    assert code == CODES[number], command.text
    assert last_line in command.text
    assert "Traceback" not in command.text
    assert SECRET not in command.text
    assert command.remains() == {}
    assert secrets_while_it_runs == []
    # A process that measures has the secret in its own files; one that starts may not have it yet.
    assert is_printed or state == "kernel"


@pytest.mark.slow
def test_kill_leaves_nothing_raw_in_the_store_and_no_process(start):
    command = start(RUN)
    command.await_state("task")
    command.send(SIGKILL, to_group=False)

    assert command.await_end() == -SIGKILL
    assert command.processes() == []
    assert command.files_with_secret() == []
    assert len(list(command.temporary.iterdir())) > 0

    code = "from benchkit.private_folder import private_folder; private_folder()"
    variables = {**os.environ, "TMPDIR": str(command.temporary), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=variables, check=True)
    assert list(command.temporary.iterdir()) == []


@pytest.mark.slow
def test_sigint_ends_command_that_a_shell_started_in_the_background(start):
    command = start(RUN, prepare=lambda: signal.signal(SIGINT, signal.SIG_IGN))
    command.await_state("kernel")
    command.send(SIGINT, to_group=False)

    assert command.await_end() == 130, command.text
    assert command.remains() == {}


@pytest.mark.slow
def test_closed_terminal_ends_command(start):
    command = start(RUN, in_terminal=True)
    command.await_state("kernel")
    command.close_terminal()

    assert command.await_end() == 129
    assert command.remains() == {}


@pytest.mark.slow
@pytest.mark.environment
def test_signal_ends_build_of_a_bisection(start, tmp_path):
    command = start(BISECT, BENCHKIT_CACHE=str(tmp_path / "cache"))
    command.await_state("bisection ")
    command.await_state("tool")
    command.send(SIGTERM, to_group=False)

    assert command.await_end() == 143, command.text
    assert "interrupted: nothing was measured" in command.text
    assert "Traceback" not in command.text
    assert command.remains() == {}
    assert [path.name for path in tmp_path.glob("cache/environments/*/*")] == []


def test_signal_ends_report_without_a_half_written_page(start, tmp_path):
    run = Store(tmp_path / "store").add(make_run())
    command = start(("report", "run", run, "-o", "page.html"))
    command.await_state("kernel")
    command.send(SIGTERM, to_group=True)

    assert command.await_end() == 143, command.text
    assert command.text == "interrupted: what was finished is kept\n"
    assert command.remains() == {}
    assert not (tmp_path / "page.html").exists()


def test_signal_ends_copy_which_another_completes(start, tmp_path):
    store, other = Store(tmp_path / "store"), tmp_path / "other"
    store.add_many(make_run(groups=False) for _ in range(N_COPIED))
    command = start(("store", "copy", "store", "other"))
    end = time.monotonic() + 120
    while not list(other.glob("runs/*/*.nc")) and time.monotonic() < end:
        time.sleep(0.002)
    command.send(SIGTERM, to_group=True)

    assert command.await_end() == 143, command.text
    assert command.text == "interrupted: what was finished is kept\n"
    assert command.remains() == {}
    assert list(other.glob("tmp/*")) == []
    n_copied = len(list(other.glob("runs/*/*.nc")))
    assert 0 < n_copied < N_COPIED
    assert store.copy(other) >= N_COPIED - n_copied
    assert Store(other).check().healthy
    assert len(Store(other)) == N_COPIED


def test_signal_ends_import_and_the_process_that_reads_its_files(start, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/runs/2026-11").mkdir(parents=True)
    written = tmp_path / "written.nc"
    make_run().to_netcdf(written, engine="h5netcdf")
    for number in range(40):
        shutil.copyfile(written, tmp_path / f"in/runs/2026-11/{number}.nc")
    (tmp_path / "in/store.json").write_text("{}")
    command = start(("store", "import", "in", "-q"))
    end = time.monotonic() + 120
    while not command.has_process("interchange.netcdf") and time.monotonic() < end:
        time.sleep(0.002)
    command.send(SIGHUP, to_group=False)

    assert command.await_end() == 129, command.text
    assert command.text == "interrupted: what was finished is kept\n"
    assert command.remains() == {}


@pytest.mark.parametrize(
    ("number", "processes", "to_group"),
    [(SIGTERM, 1, False), (SIGINT, 1, True), (SIGTERM, 2, False), (SIGINT, 2, True)],
)
def test_signal_ends_dashboard_and_frees_its_port(start, tmp_path, number, processes, to_group):
    Store(tmp_path / "store").add(make_run())
    command = start(("dashboard", "--port", "0", "--num-procs", str(processes)))
    command.await_state("http://")
    assert len(command.ports()) > 0
    command.send(number, to_group=to_group)

    assert command.await_end() == CODES[number], command.text
    assert command.text.splitlines()[1:] == ["stopped"]
    assert command.remains() == {}
