"""No file of a store holds a secret of an environment, a workload or its errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchkit.store.store import Store

#: Texts that hold a secret by their form -> the secret: variables with harmless names, a log line
#: and the error of the workload.
FORMS = {
    "https://acc.blob.core.windows.net/c?sv=2024&sig=Ab%2Bcd%3D-12": "Ab%2Bcd%3D-12",
    "https://b.s3.amazonaws.com/k?X-Amz-Signature=deadbeef13&x=2": "deadbeef13",
    "AccountName=a;AccountKey=Zm9vYmFyMTQ=;EndpointSuffix=x": "Zm9vYmFyMTQ=",
    "Endpoint=sb://x/;SharedAccessKey=c2VjcmV0MTU;x": "c2VjcmV0MTU",
    "Server=db;User=sa;Password=server-pw-16;": "server-pw-16",
    "redis://:cache-pw-17@cache:6379/0": "cache-pw-17",
    "git+https://git-tok-18@github.com/x/y@main": "git-tok-18",
    "https://dsn0123456789abcdef19@o1.ingest.sentry.io/42": "dsn0123456789abcdef19",
    "run --api-key option-key-20": "option-key-20",
    '{"access_token": "json-tok-21"}': "json-tok-21",
    "header Authorization: Bearer bearer-TOK-22": "bearer-TOK-22",
    "github_pat_11ABCDEFG0abcdefghij_KLMN23": "github_pat_11ABCDEFG0abcdefghij_KLMN23",
    "glpat-abcdefghijklmnop1224": "glpat-abcdefghijklmnop1224",
    "xoxb-123456789025-abcdef": "xoxb-123456789025-abcdef",
    "key AKIAIOSFODNN7EXAMP26 is wrong": "AKIAIOSFODNN7EXAMP26",
    "sk-proj-abcdefghij0123456727": "sk-proj-abcdefghij0123456727",
    "pypi-AgEIcHlwaS5vcmcCJD28": "pypi-AgEIcHlwaS5vcmcCJD28",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIyOSJ9.c2lnbmF0dXJl": "eyJzdWIiOiIyOSJ9",
    "https://hooks.slack.com/services/T0/B0/Hook30": "T0/B0/Hook30",
}
WORKLOAD = '''
import logging
import os
from benchkit import workload

OWN = [os.environ[name] for name in os.environ if name.startswith("OWN_FORM_")]

@workload(category="own")
def leaks(client):
    """Use secrets in every way that ends up in a run."""
    def log():
        logging.getLogger("distributed.worker").warning("from %s", os.environ["OWN_API_KEY"])
        print("https://me:log-pw-5@host/")
        return 1
    client.submit(log).result()
    logging.getLogger("distributed.client").warning("%s", " | ".join(OWN))
    raise ValueError("cannot open https://bob:error-pw-6@db/x?token=error-tok-7 with "
                     + " | ".join([os.environ["OWN_API_KEY"], *OWN]))
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
ENVIRONMENT += "".join(f"  OWN_FORM_{i}: {json.dumps(text)}\n" for i, text in enumerate(FORMS))
PLANTED = (
    "config-tok-1", "config-pw-2", "cluster-tok-3", "variable-key-4", "log-pw-5", "error-pw-6",
    "error-tok-7", "database-pw-8", "ghp_0123456789abcdefghij", "ambient-tok-9", "ambient-pw-10",
    "argument-tok-11", *FORMS.values(),
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
    assert "AccountKey=***" in text


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
