"""Each shipped notebook runs from top to bottom under papermill."""

import ast
import re

import nbformat
import papermill
import pytest

from benchkit.errors import BenchkitError
from benchkit.experiment.paths import notebook_path, shipped
from benchkit.experiment.run.kernel import declared_parameters
from benchkit.store.store import Store
from validation.history_data import SLOWER, fill


def execute(name, tmp_path, **parameters):
    output = tmp_path / f"{name}.ipynb"
    papermill.execute_notebook(
        str(notebook_path(name)),
        str(output),
        parameters=parameters,
        kernel_name="python3",
        progress_bar=False,
    )
    return nbformat.read(str(output), as_version=4)


@pytest.mark.parametrize(
    "name", ["ab", "bisect", "explore", "history", "measure", "nightly", "run"]
)
def test_papermill_reads_all_parameters_of_notebook(name):
    read = papermill.inspect_notebook(str(notebook_path(name)))

    declared = declared_parameters(notebook_path(name))
    assert [*read] == [*declared]
    for key, item in read.items():
        assert ast.literal_eval(item["default"]) == declared[key].default
        assert item["help"] == declared[key].comment


@pytest.mark.slow
def test_measure_notebook_stores_its_run(tmp_path):
    execute(
        "measure",
        tmp_path,
        workload="sched.task_throughput[n=1000]",
        workloads=[str(shipped("workloads"))],
        store=str(tmp_path / "store"),
        scale=0.2,
    )

    (outcome,) = Store(tmp_path / "store", create=False).runs()["outcome"]
    assert outcome == "ok"


@pytest.mark.slow
def test_notebook_with_invalid_parameter_keeps_nothing(tmp_path):
    message = "scale='big': must be a number above 0 and up to 1"
    with pytest.raises(papermill.PapermillExecutionError, match=re.escape(message)):
        execute("measure", tmp_path, store=str(tmp_path / "store"), scale="big")
    assert not (tmp_path / "store").exists()


def run_cells(name, parameters):
    """Run the cells of a notebook in this process."""
    cells = nbformat.read(notebook_path(name), as_version=4).cells
    texts = [cell.source for cell in cells if cell.cell_type == "code"]
    scope = {}
    exec(texts[0], scope)
    exec("\n".join(texts[1:]), scope | parameters)


BISECT = {"workload": "sched.tree", "package": "dask", "good": "2026.7.0", "bad": "2026.8.0"}


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("measure", {"scale": 0}, "scale=0: must be a number above 0 and up to 1"),
        ("measure", {"deadline_s": "ten"}, "deadline_s='ten': must be a number of seconds above 0"),
        ("measure", {"capture": "ful"}, "capture 'ful': no capture level named 'ful': did you"),
        ("measure", {"workloads": "nowhere"}, "nowhere: no such folder of workloads"),
        ("measure", {"workloads": ".."}, "..: contains the working directory"),
        ("measure", {"workload": "sched.trees"}, "no workload named 'sched.trees': did you mean"),
        ("measure", {"workload": ""}, "workload='': is empty"),
        ("measure", {"workload": 7}, "workload=7: must be text"),
        ("measure", {"params": "n=3"}, "params='n=3': must be a dict; papermill takes -y"),
        ("measure", {"cluster": "x"}, "cluster: 'x' is not a mapping of options"),
        ("measure", {"clusters": [1]}, "clusters=[1]: must be a dict; papermill takes -y"),
        ("measure", {"facts": "x"}, "facts='x': must be a dict; papermill takes -y"),
        ("measure", {"prometheus": 3}, "prometheus=3: must be text; papermill takes -r"),
        ("measure", {"store": "file"}, "file: a file, not a store: give a folder"),
        ("nightly", {"repeats": 0}, "repeats=0: must be a whole number, 1 or more"),
        ("nightly", {"scale": 2}, "scale=2: must be a number above 0 and up to 1"),
        ("nightly", {"budget_s": "ten"}, "budget_s='ten': must be a number of seconds above 0"),
        ("nightly", {"select": "a and ("}, "-k 'a and (': at character 8: incomplete"),
        ("nightly", {"environments": "[]"}, "environments: is empty: name one"),
        ("nightly", {"environments": {"a": 1}}, "environments={'a': 1}: must be a list of texts"),
        ("nightly", {"workloads": "nowhere"}, "nowhere: no such folder of workloads"),
        ("nightly", {"environment_folders": "nowhere"}, "nowhere: no such folder of environments"),
        (
            "nightly",
            {"environments": '["tipp"]'},
            "no environment named 'tipp': did you mean 'tip'",
        ),
        ("nightly", {"metrics": "durration"}, "no metric named 'durration'"),
        ("nightly", {"control": "tipp"}, "no environment named 'tipp': did you mean 'tip'?"),
        ("nightly", {"night": "lastweek"}, "'lastweek' is not a time"),
        ("nightly", {"store": "file"}, "file: a file, not a store: give a folder"),
        ("nightly", {"measure": False, "store": "none"}, "none: no store there"),
        ("bisect", {"store": "none"}, "none: no store there"),
        ("bisect", {"workload": "sched.tree"}, "good='': is empty"),
        ("bisect", {**BISECT, "workload": "sched.trees"}, "no workload named 'sched.trees': did"),
        ("bisect", {**BISECT, "metric": "durration"}, "no metric named 'durration': did you mean"),
        ("bisect", {**BISECT, "budget_s": "ten"}, "budget_s='ten': must be a number of seconds"),
        ("explore", {"scale": "big"}, "scale='big': must be a number above 0 and up to 1"),
        ("explore", {"first": "array.svd"}, "no workload named 'array.svd': did you mean"),
        ("history", {"store": "none"}, "none: no store there"),
        ("run", {"store": "none"}, "none: no store there"),
        ("ab", {"store": "none"}, "none: no store there"),
    ],
)
def test_cells_of_notebook_refuse_invalid_parameter(
    tmp_path, monkeypatch, name, parameters, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()

    with pytest.raises(BenchkitError) as caught:
        run_cells(name, parameters)

    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_run_notebook_refuses_number_for_run(tmp_path):
    Store(tmp_path / "store").create()
    with pytest.raises(BenchkitError, match="run=12345: must be text"):
        run_cells("run", {"store": str(tmp_path / "store"), "run": 12345})


@pytest.mark.slow
def test_explore_notebook_draws_comparison(tmp_path):
    executed = execute("explore", tmp_path, store=str(tmp_path / "store"), scale=0.1)

    runs = Store(tmp_path / "store", create=False).runs()
    assert list(runs["outcome"]) == ["ok"] * 12
    assert sorted(runs["arm"][-2:]) == ["large", "small"]
    outputs = [str(o.get("data", {})) for c in executed.cells for o in c.get("outputs", [])]
    assert any("my.sum" in text and "faster" in text for text in outputs)
    # The imports draw nothing, but load the scripts of hvPlot.
    _, *figures = [
        cell
        for cell in executed.cells
        if any(
            "data-root-id" in o.get("data", {}).get("text/html", "")
            for o in cell.get("outputs", [])
        )
    ]
    assert len(figures) == 6
    assert not any("https://cdn.bokeh.org" in text for text in outputs)  # needs no network
    assert not [
        o for c in executed.cells for o in c.get("outputs", []) if o.get("name") == "stderr"
    ]


def figures_of(executed):
    """Return the outputs of an executed notebook that are figures; imports of scripts are none."""
    outputs = [o.get("data", {}).get("text/html", "") for c in executed.cells
               for o in c.get("outputs", [])]  # fmt: skip
    return [text for text in outputs if "data-root-id" in text]


@pytest.fixture(scope="module")
def nights(tmp_path_factory, a_run):
    """Return the folder of a store of five nights of two workloads."""
    return str(fill(tmp_path_factory.mktemp("history") / "store", a_run, n_nights=5).path)


@pytest.mark.slow
def test_history_notebook_draws_runs_nights_and_memory(tmp_path, nights):
    executed = execute("history", tmp_path, store=nights, workload=SLOWER)

    texts = [str(o.get("data", {})) for c in executed.cells for o in c.get("outputs", [])]
    n_runs = int((Store(nights).runs()["workload"] == SLOWER).sum())
    for title in (f"of {n_runs} runs?", "median of each day?", "memory did each worker use?"):
        assert any(title in text for text in texts), title
    assert len(figures_of(executed)) >= 5
    assert not any("https://cdn.bokeh.org" in text for text in texts)  # needs no network
    assert not any("This part cannot be shown" in text for text in texts)


@pytest.mark.slow
def test_run_notebook_shows_each_section(tmp_path, nights):
    executed = execute("run", tmp_path, store=nights)

    texts = [str(o.get("data", {})) for c in executed.cells for o in c.get("outputs", [])]
    assert len(figures_of(executed)) >= 7
    assert not any("This part cannot be shown" in text for text in texts)
    assert not [o for c in executed.cells for o in c.get("outputs", []) if o.output_type == "error"]


def test_history_notebook_names_unknown_workload_and_metric(nights):
    with pytest.raises(BenchkitError, match="no nights of workload 'array"):
        run_cells("history", {"store": nights, "workload": "array.nothing"})
    with pytest.raises(BenchkitError, match="no section 'durration': did you mean 'duration'"):
        run_cells("history", {"store": nights, "workload": SLOWER, "metric": "durration"})


@pytest.mark.slow
def test_nightly_notebook_measures_and_shows_night(tmp_path):
    store = str(tmp_path / "store")
    select = "sched.task_throughput and n=1000"
    executed = execute(
        "nightly", tmp_path, store=store, select=select, scale=0.2, night="2026-10-01"
    )
    events = Store(store, create=False).events()
    assert [(event["kind"], event["seen"]) for event in events] == [
        ("night", "2026-10-01T00:00:00")
    ]

    again = execute("nightly", tmp_path, store=store, measure=False)
    for notebook in (executed, again):
        texts = [str(o.get("data", "")) for c in notebook.cells for o in c.get("outputs", [])]
        assert any("1 run, 0 of them failed" in text for text in texts)
    assert len(Store(store).events()) == 1
