"""No command writes, publishes, posts or prints a secret; what is none stays readable."""

import base64
import gzip
import html
import json
import random
import sys
from pathlib import Path

import msgpack
import pyarrow.parquet as pq
import pytest
from helpers.commands import run_benchkit
from helpers.event_loops import run_in_thread
from helpers.github_server import GitHubServer
from helpers.planted_secrets import harmless_texts, planted_texts
from helpers.webhook_server import webhook_server

import benchkit as package
from benchkit.measure.run_ids import new_id
from benchkit.store.store import Store

_WORDS = random.Random("places")


def secret_word(prefix: str = "") -> str:
    """Return a plain word without digits: only its place says that it is secret."""
    return prefix + "".join(_WORDS.choices("bcdfghjklmnpqrstvwxz", k=14))


#: Place -> a secret that is known by its place, not by its form.
PLACES = {
    place: secret_word()
    for place in (
        "ambient variable", "variable with a plural", "variable with a number", "variable of a key",
        "login in an ambient address", "login of a proxy", "login of an index",
        "ambient Dask configuration", "nested Dask configuration", "list in Dask configuration",
        "address in Dask configuration", "variable of the environment", "address in a variable",
        "login in the address of the store", "variable of the cluster",
        "tag", "address in a tag", "parameter", "address in a parameter", "storage option",
        "key of a storage option", "workload source", "description", "doc",
        "exception of a task", "dict in an exception", "log of a worker",
        "print of a worker", "log of the client", "print of the client", "name of a task",
        "event of the scheduler", "Basic login", "quoted password",
    )
}  # fmt: skip
P = PLACES
#: Places in which the workload shows the value of a variable.
LOUD = [place for place in PLACES if place.partition(" ")[0] in (
    "exception", "dict", "log", "print", "event",
)]  # fmt: skip
TOKEN = secret_word()
QUOTED = f'it\'s "{P["quoted password"]}" & <more>/@%'
TEXTS = planted_texts("store")
HARMLESS = harmless_texts()
WORKLOAD = f'''
import base64
import json
import logging
import os

from benchkit import workload
from distributed import get_worker

TEXTS = json.loads(os.environ.get("PLANTED_TEXTS", "[]"))
HARMLESS = json.loads(os.environ.get("HARMLESS_TEXTS", "[]"))
CONNECTION = {{"password": "{P["workload source"]}"}}

@workload(category="own", variants={{"url": [""], "storage_options": [{{}}], "token": [""]}})
def leaks(client, *, url, storage_options, token):
    """Use secrets in every way that ends up in a run, such as https://me:{P["doc"]}@host/.

    Uses password='{P["description"]}' of the team.
    """
    known = dict(os.environ)
    def log(n):
        logging.getLogger("distributed.worker").warning("from %s", known['SECRET_LOG_OF_A_WORKER'])
        for text in TEXTS:
            logging.getLogger("distributed.worker").warning("%s", text)
        print("print", known['SECRET_PRINT_OF_A_WORKER'])
        get_worker().log_event("own", {{"password": known['SECRET_EVENT_OF_THE_SCHEDULER']}})
        return n
    client.submit(log, 1).result()
    client.submit(log, 2, key="load-https://me:{P["name of a task"]}@host/x").result()
    logger = logging.getLogger("distributed.client")
    for text in HARMLESS:
        logger.warning("kept %s", text)
    logger.warning("%s", " | ".join(TEXTS))
    logger.warning("%s", known['SECRET_LOG_OF_THE_CLIENT'])
    print(known['SECRET_PRINT_OF_THE_CLIENT'], url, storage_options, token)
    login = base64.b64encode(("bob:" + os.environ["FTP_PASS"]).encode()).decode()
    print("sent", login, os.environ["QUOTED_PASSWORD"], repr(os.environ["QUOTED_PASSWORD"]))
    def fail():
        try:
            raise KeyError({{"password": known['SECRET_DICT_IN_AN_EXCEPTION']}})
        except KeyError as error:
            raise ValueError(
                f"{{url}} {{storage_options}} {{known['SECRET_EXCEPTION_OF_A_TASK']}} "
                + str({{"token": "{secret_word()}"}}) + " | ".join(TEXTS) + login
            ) from error
    if os.environ.get("OWN_FAILS"):
        client.submit(fail).result()
    return client.map(abs, range(4), pure=False)
'''
ENVIRONMENT = f"""
description: measured with password={P["tag"]}9
dask:
  benchkit:
    other-settings: [coiled, some]
  coiled:
    token: {P["nested Dask configuration"]}
  some:
    address: https://me:{P["address in Dask configuration"]}@proxy:8080
    deep:
      - credentials: {{user: bob, password: {P["list in Dask configuration"]}}}
cluster:
  n_workers: 1
  threads_per_worker: 1
  env:
    WORKER_TOKENS: {P["variable of the cluster"]}
variables:
  OWN_API_KEY: {P["variable of the environment"]}
  DATABASE_URL: postgresql://u:{P["address in a variable"]}@host/db
  QUOTED_PASSWORD: {json.dumps(QUOTED)}
  FTP_PASS: {P["Basic login"]}
"""
AMBIENT = {
    "MY_TOKEN": P["ambient variable"],
    "HF_TOKENS": P["variable with a plural"],
    "TOKEN2": P["variable with a number"],
    "FERNET_KEY": P["variable of a key"],
    "SERVICE_ADDRESS": f"https://bob:{P['login in an ambient address']}@host",
    "HTTPS_PROXY": f"http://bob:{P['login of a proxy']}@127.0.0.1:9",
    "NO_PROXY": "*",
    "UV_INDEX": f"https://bob:{P['login of an index']}@index.example/simple",
    "DASK_FOO__PASSWORD": P["ambient Dask configuration"],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose store has runs of two commands; what they printed is in `printed`."""
    folder = tmp_path_factory.mktemp("secrets")
    variables = {
        "PLANTED_TEXTS": json.dumps(list(TEXTS)),
        "HARMLESS_TEXTS": json.dumps(HARMLESS),
    }
    for place in LOUD:
        variables[f"SECRET_{place.upper().replace(' ', '_')}"] = PLACES[place]
    environment = ENVIRONMENT + "".join(
        f"  {name}: {json.dumps(text)}\n" for name, text in variables.items()
    )
    for name, file, text in (
        ("workloads", "own.py", WORKLOAD),
        ("environments", "planted.yaml", environment),
    ):
        (folder / name).mkdir()
        (folder / name / file).write_text(text)
    storage = {"key": P["key of a storage option"], "secret": P["storage option"]}
    words = [
        "run", "own.leaks", "-e", "planted", "--capture", "full+cluster-dump+performance-report",
        "--set", f"url=https://bob:{P['address in a parameter']}@host/db",
        "--set", f"storage_options={json.dumps(storage)}", "--set", f"token={P['parameter']}",
        "--tag", f"note=--token={P['tag']}", "--tag", f"where=https://me:{P['address in a tag']}@h",
    ]  # fmt: skip
    done = benchkit(folder, *words, "--tag", "night=2026-08-09T02:00:00")
    assert done.returncode == 0, done.stderr
    failed = benchkit(folder, *words, "--tag", "night=2026-08-10T02:00:00", OWN_FAILS="1")
    assert failed.returncode == 3, failed.stderr
    return folder, [done.stdout, done.stderr, failed.stdout, failed.stderr]


def benchkit(folder, *words, **variables):
    return run_benchkit(words, folder, **{**AMBIENT, "BENCHKIT_STORE": "store", **variables})


@pytest.fixture
def github():
    server = GitHubServer(TOKEN)
    yield server
    server.close()


@pytest.fixture
def webhook():
    with webhook_server() as server:
        yield server


def found_in(text: str | bytes) -> list[str]:
    """Return the secrets in a text or file, in any of their spellings."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    found = [place for place, secret in PLACES.items() if secret.encode() in data]
    for shown, secret in TEXTS.items():
        spellings = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], html.escape(secret)}
        if any(spelling.encode() in data for spelling in spellings):
            found.append(shown)
    for place in ("Basic login", "quoted password"):
        for offset in range(3):
            inner = base64.b64encode(b"x" * offset + PLACES[place].encode())[4:16]
            found += [f"{place} in base64"] if inner in data else []
    return found


def contents(path: Path):
    """Yield the bytes of a file, and what is packed inside of it."""
    data = path.read_bytes()
    yield data
    if path.suffix == ".gz":
        unpacked = gzip.decompress(data)
        yield unpacked
        yield repr(msgpack.unpackb(unpacked, strict_map_key=False)).encode()
    if path.suffix == ".parquet":
        yield json.dumps(pq.read_table(path).to_pylist(), default=str).encode()


def texts_of_run(run):
    """Return all texts in a run, decompressed."""
    texts = [json.dumps({k: str(v) for k, v in node.attrs.items()}) for node in run.tree.subtree]
    for node in run.tree.subtree:
        texts += [str(v.values.tolist()) for v in node.variables.values() if v.dtype.kind in "OUS"]
    return "\n".join(texts)


@pytest.mark.slow
def test_no_file_and_no_name_of_a_store_holds_a_secret(project):
    folder, _ = project
    files = [path for path in (folder / "store").rglob("*") if path.is_file()]

    assert {path.suffix for path in files} >= {".nc", ".json", ".ipynb", ".log", ".gz", ".html"}
    found = {
        (path.name, place)
        for path in files
        for content in contents(path)
        for place in found_in(content)
    }
    assert found == set()
    assert [name for path in files if (name := found_in(str(path)))] == []


@pytest.mark.slow
def test_runs_have_no_secret_and_keep_what_is_none(project):
    folder, _ = project
    store = Store(folder / "store")
    texts = [texts_of_run(store.open(run)) for run in store.runs()["id"]]

    assert len(texts) >= 2
    assert [place for text in texts for place in found_in(text)] == []
    assert "WORKER_TOKENS" in texts[0]
    assert "DATABASE_URL" in texts[0]
    assert "own.leaks[url=https://***@host/db" in texts[0]
    for kept in HARMLESS:
        spellings = (kept, json.dumps(kept)[1:-1], repr(kept)[1:-1])
        assert all(any(spelling in text for spelling in spellings) for text in texts), kept


@pytest.mark.slow
def test_commands_print_publish_and_post_no_secret(project, github, webhook):
    folder, printed = project
    add_earlier_nights(Store(folder / "store"))
    variables = {
        "GITHUB_API_URL": github.url, "GITHUB_REPOSITORY": "dask/perf", "GITHUB_TOKEN": TOKEN,
        "BENCHKIT_WEBHOOK": webhook.url,
    }  # fmt: skip
    commands = [
        ["nightly", "--no-measure", "--publish", "site", "--issues", "github", "--webhook", "json"],
        ["list", "runs", "--json"],
        ["env", "show", "planted"],
        ["env", "list"],
        ["list", "workloads"],
        ["diagnose"],
        ["report", "run", "--output", "run.html"],
        ["run", "own.leaks", "-e", "planted", "--set", f"tokn={P['parameter']}"],
        [
            "run",
            "own.leaks",
            "--store",
            f"s3://key:{P['login in the address of the store']}@bucket/x",
        ],
    ]
    for words in commands:
        done = benchkit(folder, *words, **variables)
        assert "Traceback" not in done.stderr
        printed += [done.stdout, done.stderr]
    answers = run_in_thread(ask(folder))

    posted = json.dumps([github.requests, webhook.messages])
    assert "own.leaks" in posted
    assert len(webhook.messages) == 1
    assert len(github.issues) == 1
    assert [place for text in (*printed, *answers, posted) for place in found_in(text)] == []
    own = {folder / "workloads", folder / "environments"}  # with the bytecode that Python leaves
    files = [path for path in folder.rglob("*") if path.is_file() and own.isdisjoint(path.parents)]
    assert {path.suffix for path in files} >= {".html", ".md", ".ipynb"}
    found = {
        (path.name, place)
        for path in files
        for content in contents(path)
        for place in (*found_in(content), *found_in(str(path)))
    }
    assert found == set()


def add_earlier_nights(store):
    """Add copies of the first run as those of nights before it."""
    run = store.open(store.runs(outcome="ok").iloc[0]["id"])
    for day in range(1, 9):
        tree, record = run.tree.copy(), json.loads(run.tree.attrs["record"])
        night = f"2026-08-0{day}T02:00:00"
        facts = {"id": new_id(), "started": f"{night}+00:00"}
        tags = json.dumps({**json.loads(record["tags"]), "night": night})
        record |= {**facts, "tags": tags}
        tree.attrs |= {**facts, "tags": tags, "record": json.dumps(record)}
        store.add(tree)


async def ask(folder):
    """Return the answers of the server of agents about the newest run."""
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "benchkit", "mcp", "--store", str(folder / "store")],
        env={"PYTHONPATH": str(Path(package.__file__).parents[1]), **AMBIENT},
    )
    texts = []
    async with Client(server) as client:
        for tool, arguments in (("list", {}), ("run", {"run": "latest"}), ("diagnose", {})):
            result = await client.call_tool(tool, arguments)
            texts += [content.text for content in result.content]
    return texts
