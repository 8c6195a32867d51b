"""Each shipped notebook runs from top to bottom under papermill."""

import ast
import re

import nbformat
import papermill
import pytest

from benchkit.experiment.paths import notebook_path, shipped
from benchkit.experiment.run.notebook_parameters import declared_parameters
from benchkit.store.store import Store


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


@pytest.mark.parametrize("name", ["ab", "bisect", "explore", "measure", "nightly", "run"])
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
@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("measure", {"scale": "big"}, "scale='big': must be a number above 0 and up to 1"),
        ("measure", {"deadline_s": "ten"}, "deadline_s='ten': must be a number of seconds above 0"),
        (
            "nightly",
            {"environments": '["tipp"]'},
            "no environment named 'tipp': did you mean 'tip'",
        ),
        ("nightly", {"metrics": "durration"}, "no metric named 'durration'"),
    ],
)
def test_notebook_with_invalid_parameter_keeps_nothing(tmp_path, name, parameters, message):
    with pytest.raises(papermill.PapermillExecutionError, match=re.escape(message)):
        execute(name, tmp_path, store=str(tmp_path / "store"), **parameters)
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_run_notebook_refuses_number_for_run(tmp_path, a_run):
    Store(tmp_path / "store").add(a_run)
    with pytest.raises(papermill.PapermillExecutionError, match="run=12345: must be text"):
        execute("run", tmp_path, store=str(tmp_path / "store"), run=12345)


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
        assert any("Night 2026-10-01T00:00: 1 run, 0 of them failed" in text for text in texts)
    assert len(Store(store).events()) == 1
