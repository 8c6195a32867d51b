"""Datasets in a bucket of a local S3 server.

The server is moto; its forty packages are in a separate environment.
"""

import json
import socket
import subprocess
import time

import pandas as pd
import pytest
import s3fs
from helpers.commands import run_benchkit
from uv import find_uv_bin

from benchkit.measure.data import remote_copy
from benchkit.measure.data.dataset import dataset

pytestmark = [pytest.mark.slow, pytest.mark.environment]
ACCESS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [find_uv_bin(), "tool", "run", "--from", "moto[server]>=5", "moto_server"]
    server = subprocess.Popen(
        [*command, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert server.poll() is None, "moto_server ended"
            assert time.monotonic() < deadline, "moto_server does not answer"
            time.sleep(0.2)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(120)


@pytest.fixture
def bucket(endpoint, tmp_path, monkeypatch):
    places = {"BENCHKIT_DATA": str(tmp_path / "here"), "BENCHKIT_DATA_URL": "s3://bench/data"}
    for name, value in {**ACCESS, "AWS_ENDPOINT_URL": endpoint, **places}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote_copy, "_UPLOADED", set())
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    files.mkdir("bench")
    yield files
    files.rm("bench", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


def test_remote_copy_in_bucket_is_complete(bucket):
    data = dataset("h2o", size="tiny")

    assert all(name.startswith("s3://bench/data/h2o-") for name in data.files("h2o"))
    there = pd.concat(map(pd.read_parquet, data.files("h2o")))
    here = pd.concat(map(pd.read_parquet, data.files("h2o", here=True)))
    pd.testing.assert_frame_equal(there, here)
    assert bucket.exists(f"{data.url}/manifest.json")


def test_workloads_read_parquet_csv_and_zarr_from_bucket(bucket, tmp_path):
    names = ("h2o.q1", "csv.basic", "zarr.filter_average[threshold=200]")
    done = run_benchkit(["run", "--scale", "0.05", "--json", "--store", "store", *names], tmp_path)

    assert done.returncode == 0, done.stderr
    assert {row["outcome"] for row in json.loads(done.stdout)} == {"ok"}
    read = {path.split("/")[2].split("-")[0] for path in bucket.find("bench/data")}
    assert {"h2o"} < read
