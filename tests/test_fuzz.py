"""Whatever a file or an argument contains, the result is a value or an error of benchkit.

``pytest tests/test_fuzz.py --hypothesis-profile long`` tries many more inputs.
"""

import html
import itertools
import json
import shutil
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchkit.errors import BenchkitError
from benchkit.experiment.environment.lookup import find_environment
from benchkit.measure.expression import matcher
from benchkit.measure.run_ids import derived_id
from benchkit.measure.workloads import Workload
from benchkit.store.filters import parse_selection, select_runs
from benchkit.store.interchange.coiled import TABLES
from benchkit.store.interchange.results import import_results
from benchkit.store.marks import KINDS
from benchkit.store.runfile import encode_tree
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

NIGHT = 1785549600.0
RUN_ID = derived_id(NIGHT, "fuzz")
#: Texts that look like parts of the inputs, in addition to any text.
WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        "and or not ( ) tag: category: profile: [ ] * env:main since:7d until: , = param:a=1"
        " tag:x=y 1e999 NaN 2024-13-45 \x00 \ud800".split(" ")
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
numbers = itertools.count()


def outcome(function, *args, **options):
    """Return the result of a function, or its error if it is one of benchkit, in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **options)
        except BenchkitError as error:
            return error


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder, and in it a store of one run."""
    folder = tmp_path_factory.mktemp("fuzz")
    store = Store(folder / "store")
    store.add(make_run(groups=False, id=RUN_ID))
    return folder


def fresh_store(folder):
    """Return a copy of the store of one run."""
    return Store(shutil.copytree(folder / "store", folder / f"store-{next(numbers)}"))


def read_everything(store):
    """Read a store as the commands do; return the report of a check."""
    outcome(store.runs)
    outcome(store.info)
    outcome(store.open, "latest")
    outcome(store.dataset)
    report = outcome(store.check)
    assert not isinstance(report, BenchkitError)
    return report


@given(st.lists(WORDS, max_size=6).map(" ".join))
def test_expression_of_workloads_is_read_or_refused(text):
    predicate = outcome(matcher, text)
    if not isinstance(predicate, BenchkitError):
        workload = Workload(lambda client: None, "array", "sum")
        assert predicate(workload.variants()[0]) in (True, False)


@given(st.lists(WORDS, max_size=5).map(",".join))
def test_selection_of_runs_is_read_or_refused(folder, text):
    filters = outcome(parse_selection, text)
    assert isinstance(filters, (dict, BenchkitError))
    outcome(select_runs, Store(folder / "store"), text)


@pytest.mark.parametrize(
    "text",
    [
        "\b",
        "dask: 2024-13-45",
        "dask: &a [*a]",
        "dask: " + "[" * 5000,
        "\n".join(["dask:", " a0: &a0 [x, x]"]
                  + [f" a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 30)]),
    ],
)  # fmt: skip
def test_environment_file_of_hostile_yaml_is_refused_in_one_line(folder, text):
    path = folder / "hostile.yaml"
    path.write_text(text)
    error = outcome(find_environment, str(path), [], check=False)
    assert isinstance(error, BenchkitError)
    assert str(error).startswith(str(path))
    assert "\n" not in str(error)


KEYS = ["extends", "description", "python", "packages", "conda", "dask", "variables", "cluster"]
ENTRIES = st.dictionaries(st.sampled_from([*KEYS, "clusters"]) | WORDS, JSON, max_size=4)


@given(ENTRIES.map(lambda content: yaml.safe_dump(content)) | st.text() | st.binary(max_size=60))
def test_environment_file_is_read_or_refused(folder, content):
    path = folder / "environment.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    result = outcome(find_environment, str(path), [], check=False)
    if not isinstance(result, BenchkitError):
        json.dumps(result.to_dict(), default=str)
    else:
        assert "environment.yaml" in str(result)


@given(JSON | st.fixed_dictionaries({"format": st.just("benchkit-store"), "version": JSON}))
def test_manifest_is_read_or_refused(folder, content):
    path = folder / "manifest"
    path.mkdir(exist_ok=True)
    (path / "store.json").write_text(json.dumps(content))
    outcome(Store, path)


@given(st.dictionaries(st.sampled_from(["id", "kind", "reason", "runs", "workload", "where",
                                        "since", "from", "to", "field", "mark"]), JSON),
       st.sampled_from(KINDS))  # fmt: skip
def test_mark_of_any_content_does_not_hide_runs(folder, content, kind):
    store = fresh_store(folder)
    mark = derived_id(NIGHT, "mark")
    content = {**content, "id": mark, "kind": kind}
    store.files.create(f"marks/{mark}.json", json.dumps(content).encode())
    assert isinstance(outcome(lambda: len(store.runs())), int)
    read_everything(store)


FIELDS = [
    "workload",
    "params",
    "tags",
    "started",
    "outcome",
    "duration",
    "n_workers",
    "extra_metrics",
]


@given(st.dictionaries(st.sampled_from(FIELDS) | WORDS, JSON, max_size=4))
def test_record_of_any_content_is_listed_or_reported(folder, changes):
    store = fresh_store(folder)
    tree = make_run(groups=False, id=derived_id(NIGHT, "other"))
    record = {**json.loads(tree.attrs["record"]), **changes, "id": tree.attrs["id"]}
    tree.attrs["record"] = json.dumps(record)
    store.files.create(run_name(tree.attrs["id"]), encode_tree(tree))  # with a correct digest
    read_everything(store)


@given(JSON)
def test_index_of_any_content_is_rebuilt(folder, content):
    store = fresh_store(folder)
    name = f"index/new/{RUN_ID}.json"
    store.files.delete(name)
    store.files.create(name, json.dumps(content).encode())
    store = Store(store.path)
    read_everything(store)
    assert Store(store.path).ids() == [RUN_ID]


ROW = st.dictionaries(
    st.sampled_from(["id", "name", "originalname", "path", "start", "end", "duration",
                     "average_memory", "peak_memory", "call_outcome", "platform", "cluster_id",
                     "dask_version", "other"]),
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | WORDS | st.binary(max_size=5),
    min_size=1,
)  # fmt: skip


@given(st.lists(ROW, max_size=3), st.sampled_from(list(TABLES)))
def test_database_of_any_rows_is_imported_or_refused(folder, rows, table):
    path = folder / f"{next(numbers)}.db"
    columns = sorted({name for row in rows for name in row}) or ["id"]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"create table {table} ({', '.join(columns)})")
        for row in rows:
            values = [
                v.encode("utf-8", "replace").decode() if isinstance(v, str) else v
                for v in map(row.get, columns)
            ]
            marks = ", ".join("?" * len(columns))
            database.execute(f"insert into {table} values ({marks})", values)
    store = Store(folder / f"imported-{next(numbers)}")
    report = outcome(import_results, store, path)
    if not isinstance(report, BenchkitError):
        assert report.rows == len(rows)
        assert len(store.runs()) == report.added <= len(rows)


@given(st.binary(max_size=100))
def test_file_of_any_bytes_is_imported_or_refused(folder, data):
    for suffix in (".db", ".json", ".html", ".yaml", ".gz"):
        path = folder / f"bytes{suffix}"
        path.write_bytes(data)
        outcome(import_results, Store(folder / "empty"), path)


@given(st.fixed_dictionaries({"benchmarks": st.lists(JSON, max_size=2) | JSON, "datetime": JSON})
       | st.fixed_dictionaries({"results": st.dictionaries(WORDS, JSON, max_size=2),
                                "result_columns": JSON, "date": JSON, "params": JSON}))  # fmt: skip
def test_results_of_any_content_are_imported_or_refused(folder, content):
    path = folder / "results.json"
    path.write_text(json.dumps(content))
    outcome(import_results, Store(folder / f"results-{next(numbers)}"), path)


@given(st.fixed_dictionaries({
    "scheduler": st.fixed_dictionaries({
        "workers": st.dictionaries(WORDS, st.fixed_dictionaries(
            {"last_seen": JSON, "nthreads": JSON}), max_size=2) | JSON,
        "tasks": st.dictionaries(WORDS, st.fixed_dictionaries(
            {"key": JSON, "state": JSON, "exception_text": JSON}), max_size=2),
        "task_groups": st.dictionaries(WORDS, st.fixed_dictionaries(
            {"states": JSON, "all_durations": JSON, "start": JSON}), max_size=2),
        "transition_log": JSON,
    }),
    "workers": st.dictionaries(WORDS, JSON, max_size=2), "versions": JSON,
}))  # fmt: skip
def test_dumps_of_any_content_are_imported_or_refused(folder, content):
    path = folder / "dump.yaml"
    path.write_text(json.dumps(content))
    outcome(import_results, Store(folder / f"dumps-{next(numbers)}"), path)


#: Tab of a performance report -> some of its columns.
TABS = {
    "Task Stream": ("key", "worker_thread", "worker", "name", "color", "start", "duration"),
    "System": ("time", "cpu", "memory"),
    "Worker Profile (compute)": ("bottom", "name", "filename", "line_number", "width", "time"),
}


@given(st.fixed_dictionaries({
    tab: st.fixed_dictionaries({name: st.lists(JSON, min_size=1, max_size=1) for name in columns})
    | st.dictionaries(st.sampled_from(columns), JSON)
    for tab, columns in TABS.items()
}), WORDS)  # fmt: skip
def test_performance_reports_of_any_content_are_imported_or_refused(folder, tabs, duration):
    numbered = itertools.count()

    def tab(title, child):
        about = {"title": title, "child": {"id": next(numbered), **child}}
        return {"id": next(numbered), "type": "Panel", "attributes": about}

    summary = f"<h2> Duration: {duration} s </h2> <li> Workers: {duration} </li>"
    content = [tab("Summary", {"type": "Div", "attributes": {"text": summary}})]
    content += [
        tab(title, {"type": "ColumnDataSource", "attributes": {"data": data}})
        for title, data in tabs.items()
    ]
    text = html.escape(json.dumps(content), quote=False)
    path = folder / "report.html"
    path.write_text(f'<script type="application/json" id="1">{text}</script>')
    outcome(import_results, Store(folder / f"reports-{next(numbers)}"), path)


def test_damaged_fixture_is_refused_in_time(folder):
    """A file without digest in which HDF5 loops for ever."""
    store = fresh_store(folder)
    path = store.files.path(run_name(RUN_ID))
    path.unlink()
    shutil.copy(Path(__file__).parent / "data" / "damaged" / "zeroed_sector.nc", path)

    assert store.check().damaged_runs == [RUN_ID]
