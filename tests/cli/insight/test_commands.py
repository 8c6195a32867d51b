"""`benchkit whatif` and `benchkit diagnose` on stored runs."""

import json

import pytest
from click.testing import CliRunner

from benchkit.cli.main import benchkit
from benchkit.store.store import Store
from validation.graph_runs import MadeTask, graph_run


@pytest.fixture
def stored(tmp_path):
    """Return the store of a run with eight tasks of 1 s on two threads, and a slow start."""
    tasks = [
        MadeTask(f"a-{n}", n // 2 + 2, n // 2 + 3, worker=n % 2, thread=n % 2) for n in range(8)
    ]
    run = graph_run(
        tmp_path / "recordings", tasks, duration=6, n_workers=2,
        submissions=[(2.0, 8)], calls=[(1.3, 1.8, 1.9)],
    )  # fmt: skip
    Store(tmp_path / "store").add(run.tree)
    return str(tmp_path / "store")


def call(*arguments):
    return CliRunner().invoke(benchkit, arguments, catch_exceptions=False)


def test_whatif_prints_a_row_per_number_of_workers(stored):
    done = call("whatif", "latest", "--workers", "1,4", "--store", stored, "--json")

    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["change"] for row in rows] == ["--workers 1", "--workers 4"]
    assert [row["seconds"] for row in rows] == pytest.approx([10.0, 4.0])
    assert "--workers 4" in call("whatif", "--workers", "4", "--store", stored).stdout


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--workers", "x", "--workers 'x': must be numbers with commas, such as 10,100"),
        ("--bandwidth", "fast", "bandwidth 'fast': must be a factor such as 2x, or as in 200MB/s"),
        ("--group", "sum", "--group 'sum': must be NAME=VALUE"),
        ("--group", "sum=fast", "sum fast: the factor must be a number, 0 or larger"),
        ("--group", "b=2", "task group 'b': the run has none; it has a"),
    ],
)
def test_whatif_refuses_bad_input_in_one_line(stored, option, value, message):
    done = call("whatif", "latest", option, value, "--store", stored)

    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_diagnose_prints_findings_and_conclusion(stored):
    rows = json.loads(call("diagnose", "--store", stored, "--json").stdout)

    assert [row["rule"] for row in rows] == ["slow_start"]
    assert rows[0]["seconds"] == 2.0
    text = call("diagnose", "latest", "--store", stored).stdout
    assert "it takes long until the first task starts" in text
    assert text.startswith("Of 6.00 s, 67% computing with most threads busy")
    many = call("diagnose", "workload:t.made*", "--store", stored)
    assert many.exit_code == 0
    assert "1 finding" in many.stdout
