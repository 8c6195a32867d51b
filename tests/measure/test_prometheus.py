"""Prometheus metrics of a run: from a server, and its errors."""

import json
import os
import socket
import subprocess
import time
import urllib.request
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import benchkit
from benchkit.cli.main import benchkit as main
from benchkit.errors import UsageError
from benchkit.measure import workload
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.prometheus import HttpError, Prometheus, read_range, selector_of
from benchkit.measure.runner import execute
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run

N_TASKS, HELD = 80, 100 * 2**20
LOCAL = ClusterSpec.from_dict({"n_workers": 2, "threads_per_worker": 1, "memory_limit": "512 MiB"})


@contextmanager
def prometheus_server(program, folder):
    """Start a Prometheus server that scrapes the targets in `targets.json` each second."""
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": "dask",
                "file_sd_configs": [
                    {"files": [f"{folder}/targets.json"], "refresh_interval": "1s"}
                ],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(f"{url}/-/ready", timeout=60).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield url
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def client():
    """Yield a client of two worker processes: workers in one process serve the same metrics."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def await_scrapes(client, url, targets):
    """Add a cluster to the targets of a server, and wait until it is scraped."""
    info = client.scheduler_info(n_workers=-1)
    processes = [info, *info["workers"].values()]
    names = [f"127.0.0.1:{process['services']['dashboard']}" for process in processes]
    targets.write_text(json.dumps([{"targets": names, "labels": {"cluster": "mine"}}]))
    for _ in range(300):
        query = f"{url}/api/v1/query?query=count(up==1)"
        with urllib.request.urlopen(query, timeout=60) as response:
            result = json.load(response)["data"]["result"]
        if result and int(result[0]["value"][1]) == len(names):
            return
        time.sleep(0.1)
    raise TimeoutError("the server does not scrape")


def nap(_):
    time.sleep(0.1)


def hold(n_bytes):
    return os.urandom(n_bytes)


@pytest.mark.slow
def test_run_contains_metrics_of_server(prometheus, tmp_path):
    @workload(category="t")
    def busy(client):
        held = client.map(hold, [HELD // 2] * 2, pure=False)
        return [*held, *client.map(nap, range(N_TASKS), pure=False)]

    with prometheus_server(prometheus, tmp_path) as url:

        @busy.prepare
        def start_scraping(client):
            await_scrapes(client, url, tmp_path / "targets.json")

        path = execute(
            busy.variants()[0],
            LOCAL,
            folder=tmp_path,
            prometheus=Prometheus(url),
        )
        # Series can be selected by other labels than their instance.
        now = time.time()
        answer = read_range(url, selector_of([], '{cluster="mine"}'), now - 20, now)
        assert b'"dask_worker_threads"' in zlib.decompress(answer["answer"])
        assert answer["metadata"]["dask_worker_threads"]["type"] == "gauge"
        for match, message in (
            ("{job=}", "the server rejected the query"),
            ('{job="x"}', "has no series"),
        ):
            with pytest.raises(HttpError, match=message):
                read_range(url, selector_of([], match), now - 20, now)
    run = Run(run_from_recording(path))
    assert run.outcome == "ok", run.error

    data, workers = run.prometheus(), run.tree["workers"]
    assert run.capture_errors == []
    assert data.attrs["server"] == url
    assert data["time"].values[0] == pytest.approx(0, abs=0.1)
    assert data["time"].values[-1] == pytest.approx(run.metrics["duration"], abs=0.1)

    # The same workers, with the names that they have in the run.
    assert set(data["address"].values[data["role"].values == "worker"]) == set(
        workers["address"].values
    )
    assert set(data["cluster"].values) == {"mine"}

    memory = data["dask_worker_memory_bytes"]
    assert memory.dims == ("time", "instance", "type")
    assert (memory.attrs["units"], memory.attrs["long_name"]) == ("B", "Memory breakdown")
    assert memory.attrs["source"] == "Prometheus"
    # A late scrape is missing, with its time.
    last = memory.sel(instance=data["role"] == "worker").dropna("time")[-1]
    process = last.sel(type=["managed", "unmanaged"]).sum()
    own = workers["process"].sum("worker")
    assert float(process) == pytest.approx(float(own[-1]), rel=0.1)
    assert float(last.sel(type="managed").sum()) == pytest.approx(HELD, rel=0.01)

    # A scrape counts the tasks that finished before it, by values that may be some seconds old.
    totals = data["dask_scheduler_prefix_state_totals_total"]
    assert "instance" not in totals.dims
    counted = totals.sel(state="memory", task_prefix_name="nap").dropna("time")
    tasks = run.task_stream()
    naps = tasks[tasks["task_group"].str.startswith("nap")]
    ends = np.sort(naps["start"] + naps["duration"])
    times = counted["time"].values
    assert len(times) >= 2
    assert (counted.values <= np.searchsorted(ends, times + 0.1)).all()
    assert (counted.values >= np.searchsorted(ends, times - 2)).all()
    assert counted[-1] > 0


def record_run(client, folder, **options):
    with benchkit.record(client, workload="t", store=folder / "store", **options) as record:
        client.gather(client.map(abs, range(30), pure=False))
    assert record.run.outcome == "ok"
    return record.run


@pytest.mark.slow
def test_run_without_capture_has_metrics_only(prometheus, client, tmp_path, monkeypatch):
    with prometheus_server(prometheus, tmp_path) as url:
        await_scrapes(client, url, tmp_path / "targets.json")
        monkeypatch.setenv("BENCHKIT_PROMETHEUS", url)
        run = record_run(client, tmp_path, capture="off")

    data = run.prometheus()
    assert list(run.tree.children) == ["prometheus"]
    assert list(data["role"].values) == ["scheduler", "worker", "worker"]
    assert data["dask_scheduler_tasks"].attrs["type"] == "gauge"


class _OtherServer(BaseHTTPRequestHandler):
    """Send responses that are not in the format of Prometheus."""

    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *args):
        pass


@pytest.mark.slow
def test_prometheus_errors_are_lines_of_run(client, tmp_path, monkeypatch):
    def error_of(url, **options):
        run = record_run(client, tmp_path, prometheus=url, **options)
        assert "prometheus" not in run.tree.children
        (line,) = run.capture_errors
        assert "secret" not in line
        return line

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        unused = f"127.0.0.1:{free.getsockname()[1]}"
    assert error_of(f"http://me:secret@{unused}") == (
        f"prometheus: http://{unused}: Connection refused"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), _OtherServer) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        line = error_of(f"http://127.0.0.1:{other.server_port}", capture="light")
        other.shutdown()
    assert line.endswith("the response is not in the format of Prometheus")

    monkeypatch.setattr("benchkit.measure.prometheus._endpoint", _no_http)
    assert error_of(f"http://{unused}").endswith("serves HTTP, so none can be scraped")


def _no_http(address, services, name, role):
    from benchkit.measure.prometheus import Endpoint

    return Endpoint("", address, name, role)


def test_commands_pass_source_to_measurement_only(monkeypatch):
    monkeypatch.delenv("BENCHKIT_PROMETHEUS", raising=False)
    seen = []

    def plan(*args, **options):
        seen.append(Prometheus.from_environment())
        raise UsageError("enough")

    monkeypatch.setattr("benchkit.experiment.run.api.plan_experiment", plan)
    match = ["--prometheus-match", '{job="dask"}']
    CliRunner().invoke(main, ["run", "--prometheus", "http://prometheus:9090", *match])
    CliRunner().invoke(main, ["run"])

    assert seen == [Prometheus("http://prometheus:9090", '{job="dask"}'), Prometheus()]
    for command in ("ab", "nightly", "bisect"):
        refused = CliRunner().invoke(main, [command, "--prometheus", "nowhere"])
        assert "prometheus 'nowhere': must be the address" in refused.output


def test_prometheus_rejects_invalid_source(monkeypatch):
    for wrong in ("prometheus:9090", "http://", "scrape", "http://host:port"):
        with pytest.raises(UsageError, match="must be the address of a server"):
            Prometheus(wrong)
    with pytest.raises(UsageError, match="must be a selector"):
        Prometheus("http://prometheus:9090", "job=dask")
    monkeypatch.setenv("BENCHKIT_PROMETHEUS", "nonsense")
    result = CliRunner().invoke(main, ["run", "--prometheus", "ftp://me:secret@host"])
    assert (result.exit_code, "secret" in result.output) == (2, False)
    assert CliRunner().invoke(main, ["ab"]).exit_code == 2
