"""Kernel of measurements: errors, and no leaks in the process that controls it."""

import threading

import nbformat
import psutil
import pytest

from benchkit.cli.progress import show_progress
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.run.kernel import KernelError, MeasuringKernel, _ClusterProgress

PARAMETERS = nbformat.v4.new_code_cell("seconds = 0.0", metadata={"tags": ["parameters"]})


@pytest.fixture
def kernel(tmp_path):
    with MeasuringKernel(Environment(CURRENT), tmp_path / "kernel") as kernel:
        yield kernel


@pytest.fixture
def notebook(tmp_path):
    def write(code):
        cells = [PARAMETERS, nbformat.v4.new_code_cell(code)]
        path = tmp_path / "notebook.ipynb"
        metadata = {"language_info": {"name": "python"}}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
        return path

    return write


def open_resources():
    """Return the number of open files and of threads of this process."""
    return psutil.Process().num_fds(), threading.active_count()


def test_kernel_execute_leaks_no_files_or_threads(kernel, notebook, tmp_path):
    path = notebook("import time; time.sleep(seconds)")
    after = []
    for _ in range(4):
        kernel.execute(path, tmp_path / "done.ipynb", {}, timeout_s=60)
        after.append(open_resources())

    assert after[-1][0] <= after[1][0]
    assert after[-1][1] <= after[1][1]


@pytest.mark.parametrize("module", ["wave", "no_such_module"])
def test_kernel_imports_at_its_start_what_exists(notebook, tmp_path, module):
    path = notebook(f"import sys; assert ({module!r} in sys.modules) == ({module!r} == 'wave')")
    with MeasuringKernel(Environment(CURRENT), tmp_path / "kernel", imports=module) as kernel:
        kernel.execute(path, tmp_path / "done.ipynb", {}, timeout_s=60)


def test_kernel_execute_failure_leaks_no_files_or_threads(kernel, notebook, tmp_path):
    failing = notebook("import time; time.sleep(seconds); 1 / 0")
    output, after = tmp_path / "done.ipynb", []
    for seconds, timeout_s, kind in [(0.0, 200, "raised"), (300.0, 2, "timeout")] * 2:
        with pytest.raises(KernelError) as caught:
            kernel.execute(failing, output, {"seconds": seconds}, timeout_s=timeout_s)
        assert caught.value.kind == kind
        after.append(open_resources())

    assert after[2][0] <= after[0][0]
    assert after[3][0] <= after[1][0]
    assert after[3][1] <= after[1][1]


def test_kernel_end_closes_connections_of_an_interrupted_notebook(kernel):
    """At the exit of Python, ZeroMQ can wait for ever for a connection that is still open."""
    client = kernel._manager.client()
    client.start_channels()
    context = client.context

    kernel.kill()

    assert context.closed
    assert not client.channels_running


def test_kernel_kill_without_process_groups_ends_children(kernel, notebook, tmp_path):
    """Windows has no process groups."""
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1)"
    kernel.execute(notebook(code), tmp_path / "done.ipynb", {}, timeout_s=60)
    kernel._manager.provisioner.pgid = None
    children = psutil.Process(kernel._manager.provisioner.pid).children(recursive=True)

    kernel.kill()

    _, alive = psutil.wait_procs(children, timeout=120)
    assert len(children) == 1
    assert alive == []


def test_lines_about_awaited_workers_reach_the_terminal(capsys):
    def events():
        file = _ClusterProgress()
        file.write("a warning of a library\nwaiting for workers of X: 1 of 3 connected\n")
        file.flush()
        yield from ()

    assert list(show_progress(events())) == []
    assert capsys.readouterr().err == "  waiting for workers of X: 1 of 3 connected\n"
    assert list(show_progress(events(), quiet=True)) == []
    assert capsys.readouterr().err == ""
