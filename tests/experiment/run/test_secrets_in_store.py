"""No file of a store holds a secret of an environment, a workload or its errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchkit.store.store import Store

WORKLOAD = '''
import logging
import os
from benchkit import workload

@workload(category="own")
def leaks(client):
    """Use secrets in every way that ends up in a run."""
    def log():
        logging.getLogger("distributed.worker").warning("from %s", os.environ["OWN_API_KEY"])
        print("https://me:log-pw-5@host/")
        return 1
    client.submit(log).result()
    raise ValueError("cannot open https://bob:error-pw-6@db/x?token=error-tok-7 with "
                     + os.environ["OWN_API_KEY"])
'''
ENVIRONMENT = """
dask:
  benchkit:
    other-settings: [coiled, some]
  coiled:
    token: config-tok-1
  some:
    address: https://me:config-pw-2@proxy:8080
cluster:
  n_workers: 1
  env:
    WORKER_TOKEN: cluster-tok-3
variables:
  OWN_API_KEY: variable-key-4
  DATABASE_URL: postgresql://u:database-pw-8@host/db
  GH_LOGIN: ghp_0123456789abcdefghijABCDEFGHIJ012345
"""
PLANTED = (
    "config-tok-1", "config-pw-2", "cluster-tok-3", "variable-key-4", "log-pw-5", "error-pw-6",
    "error-tok-7", "database-pw-8", "ghp_0123456789abcdefghij", "ambient-tok-9", "ambient-pw-10",
    "argument-tok-11",
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secrets")
    for name, file, text in (
        ("workloads", "own.py", WORKLOAD),
        ("environments", "planted.yaml", ENVIRONMENT),
    ):
        (folder / name).mkdir()
        (folder / name / file).write_text(text)
    variables = {
        "MY_TOKEN": "ambient-tok-9",
        "DASK_FOO__URL": "https://u:ambient-pw-10@h",
    }
    command = [sys.executable, "-m", "benchkit", "run", "own.leaks", "-e", "planted"]
    done = subprocess.run(
        [*command, "--store", "store", "--tag", "note=--token=argument-tok-11"],
        cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    printed = done.stdout + done.stderr
    assert [secret for secret in PLANTED if secret in printed] == []
    return Store(folder / "store")


def texts_of_run(store):
    """Return all texts in a run, decompressed."""
    tree = store.open("latest").tree
    texts = [json.dumps({k: str(v) for k, v in node.attrs.items()}) for node in tree.subtree]
    for node in tree.subtree:
        texts += [str(v.values.tolist()) for v in node.variables.values() if v.dtype.kind in "OU"]
    return "\n".join(texts)


def test_run_has_no_secret_and_all_else(store):
    text = texts_of_run(store)

    assert [secret for secret in PLANTED if secret in text] == []
    assert "cannot open https://***@db/x?token=***" in text
    assert "WORKER_TOKEN" in text
    assert "DATABASE_URL" in text


def test_no_file_of_the_store_holds_a_secret(store):
    files = [path for path in Path(store.path).rglob("*") if path.is_file()]
    found = [
        (path.name, secret)
        for path in files
        for secret in PLANTED
        if secret.encode() in path.read_bytes()
    ]

    assert {path.suffix for path in files} >= {".nc", ".json", ".ipynb", ".log"}
    assert found == []


def test_configuration_of_the_arm_is_private_and_deleted(tmp_path, monkeypatch):
    from benchkit.experiment.environment.environment import Environment
    from benchkit.experiment.run.kernel import MeasuringKernel

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    kernel = MeasuringKernel(Environment("own", dask={"coiled": {"token": "t-1"}}), tmp_path / "e")
    kernel.start()
    (folder,) = tmp_path.glob("benchkit-*")

    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["dask.yaml", "kernel.json"]
    assert "t-1" in (folder / "dask.yaml").read_text()
    kernel.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e"]
    monkeypatch.setattr("tempfile.tempdir", None)
