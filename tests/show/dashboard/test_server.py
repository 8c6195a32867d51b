"""Server of the dashboard: processes, options and permitted accounts."""

import asyncio
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from helpers.commands import run_benchkit
from helpers.dashboards import SERVER
from helpers.event_loops import run_in_thread

from benchkit.cli.main import benchkit as command
from benchkit.errors import UsageError
from benchkit.show.dashboard.server import _bind, account_filter
from benchkit.store.store import Store
from validation.dashboard_server import open_page, running_dashboard, sees

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


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
    if process.poll() is None:
        for running in (*psutil.Process(process.pid).children(), process):
            running.kill()
    process.communicate(timeout=200)


@pytest.mark.browser
def test_processes_serve_and_exit_with_parent(browser, server):
    site = server.stdout.readline().strip()
    made = psutil.Process(server.pid).children()
    assert len(made) == 2

    for _ in range(3):  # either process may accept a connection
        context = browser.new_context()
        page = context.new_page()
        open_page(page, f"{site}?view=run")
        sees(page, "tests.sum")
        sees(page, "Is this result usual?")
        page.get_by_text("Facts", exact=True).click()
        sees(page, "What was measured")
        context.close()
    server.kill()

    gone, alive = psutil.wait_procs(made, timeout=120)
    for process in alive:
        process.kill()
    assert len(gone) == 2


def test_visits_at_once_cost_as_much_as_in_turn(tmp_path, a_run):
    visit = runpy.run_path(str(BENCHMARKS / "visitor.py"))["visit"]
    store = Store(tmp_path / "store")
    query = f"view=run&id={store.add(a_run)}"

    with running_dashboard(store.path) as (site, process):

        async def cpu_s(n_at_once):
            """Return the CPU seconds of the server for five visits."""
            before = sum(process.cpu_times()[:2])
            for _ in range(5 // n_at_once):
                await asyncio.gather(*(visit(site, query) for _ in range(n_at_once)))
            return sum(process.cpu_times()[:2]) - before

        async def measure():
            await cpu_s(5)  # fills the caches
            return [(await cpu_s(1), await cpu_s(5)) for _ in range(2)]

        rounds = run_in_thread(measure())

    # Other processes add to the processor time of a few visits: the least disturbed ones count.
    in_turn, at_once = (min(values) for values in zip(*rounds, strict=True))

    assert 0.1 < in_turn
    assert at_once < 1.5 * in_turn


def test_missing_store_is_one_line_error(tmp_path):
    done = run_benchkit(["dashboard", "--store", tmp_path / "none"], tmp_path)

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--allow-websocket-origin", "*", "--address", "0.0.0.0"], "name the hosts"),
        (["--allow-websocket-origin", "*:5006"], "'*:5006' lets any web page read"),
        (["--basic-auth", "nowhere.json"], "no such file of users"),
        (["--address", "0.0.0.0"], "or accept it with --insecure"),
        (["--follow", "nosuch"], "`benchkit ab` starts one"),
    ],
)
def test_invalid_options_are_rejected(tmp_path, a_run, options, message):
    Store(tmp_path / "s").add(a_run)
    done = CliRunner().invoke(command, ["dashboard", "--store", str(tmp_path / "s"), *options])

    assert done.exit_code == 2
    assert message in done.stderr


OAUTH = "--oauth-provider github --oauth-key k --oauth-secret s --cookie-secret c".split()


def test_port_taken_since_it_was_found_is_replaced_if_any_was_wanted():
    with socket.socket() as other:

        def serve_on(port):
            if other.getsockname()[1] == 0:  # another process is faster, once
                other.bind(("127.0.0.1", port))
                other.listen()
            return socket.create_server(("127.0.0.1", port))

        server, port = _bind(serve_on, "127.0.0.1", 0)
        with server:
            assert server.getsockname()[1] == port != other.getsockname()[1]
        taken = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {taken}: Address already in use: choose"):
            _bind(serve_on, "127.0.0.1", taken)


def test_account_filter_compares_verified_fields():
    may_come = account_filter(["Ada", "grace@example.org"])

    assert may_come({"login": "ada"})
    assert may_come({"login": "gh", "email": "Grace@example.org"})
    assert not may_come({"login": "mallory", "name": "Ada"})
    assert not may_come({"login": "", "email": None})
    assert not may_come(None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--allow-marks", "--allow-websocket-origin", "bench.example.org"],
            "origin lets everyone",
        ),
        (["--allow-marks", "--address", "0.0.0.0"], "everyone write into the store"),
        (["--oauth-key", "k"], "--oauth-key needs --oauth-provider, which is missing"),
        (["--oauth-user", "me"], "--oauth-user needs --oauth-provider, which is missing"),
        (["--basic-auth", __file__], "--basic-auth needs --cookie-secret"),
        (["--basic-auth", __file__, *OAUTH], "exclude each other"),
        ([*OAUTH, "--allow-marks"], "name the permitted accounts with --oauth-user"),
    ],
)
def test_unsafe_login_options_are_rejected(running_store, options, message):
    done = CliRunner().invoke(command, ["dashboard", "--store", str(running_store.path), *options])

    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--oauth-key", "k"], "you must supply a valid cookie_secret"),
        (["--cookie-secret", "c", "--oauth-encryption-key", "short"], "encryption key"),
        (["--cookie-secret", "c", "--oauth-extra-params", "{"], "never closed"),
        (["--cookie-secret", "c", "--oauth-expiry-days", "soon"], "invalid float value: 'soon'"),
    ],
)
def test_panel_rejects_its_login_options_in_one_line(running_store, tmp_path, options, message):
    command = ["dashboard", "--store", running_store.path, "--port", "0"]

    done = run_benchkit([*command, "--oauth-provider", "github", *options], tmp_path, server=SERVER)

    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
