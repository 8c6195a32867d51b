"""A dashboard of several processes: any of them serves a visitor, all end with the first."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from helpers.dashboard_server import open_page, sees

from benchkit import Store


@pytest.fixture
def server(tmp_path, a_run):
    store = Store(tmp_path / "store")
    store.add(a_run)
    command = [sys.executable, "-m", "benchkit", "dashboard", "--store", str(store.path)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--num-procs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    for each in (
        [*psutil.Process(process.pid).children(), process] if process.poll() is None else []
    ):
        each.kill()
    process.communicate(timeout=10)


@pytest.mark.browser
def test_any_process_serves_a_visitor_and_all_are_gone_when_the_first_is_killed(browser, server):
    site = server.stdout.readline().strip()
    made = psutil.Process(server.pid).children()
    assert len(made) == 2

    for _ in range(3):  # either process may accept a connection
        context = browser.new_context()
        page = context.new_page()
        open_page(page, f"{site}?view=run")
        sees(page, "tests.sum")
        sees(page, "Is that usual?")
        page.get_by_text("Facts", exact=True).click()
        sees(page, "What was measured")
        context.close()
    server.kill()

    gone, alive = psutil.wait_procs(made, timeout=20)
    for each in alive:
        each.kill()
    assert len(gone) == 2


def test_ctrl_c_ends_all_processes_at_once(server):
    assert server.stdout.readline().startswith("http")
    made = psutil.Process(server.pid).children()

    os.killpg(server.pid, signal.SIGINT)

    assert server.wait(20) in (0, 130)
    assert psutil.wait_procs(made, timeout=20)[1] == []
    assert "Traceback" not in server.stderr.read()
