"""Measuring a cell of a notebook."""

import pytest
from distributed import Client
from IPython.core.interactiveshell import InteractiveShell

from benchkit.store.run import Run
from benchkit.store.store import Store


@pytest.fixture
def shell():
    """Return a session of IPython with the extension."""
    session = InteractiveShell.instance()
    session.run_line_magic("load_ext", "benchkit")
    yield session
    InteractiveShell.clear_instance()


@pytest.fixture(scope="module")
def client():
    """Return the current client."""
    with Client(n_workers=1, processes=False, dashboard_address=":0") as current:
        yield current


CELL = "answer = client.submit(sum, [1, 2], pure=False).result()"


def test_cell_is_recorded_in_the_namespace_of_the_user(shell, client, tmp_path):
    shell.user_ns["client"] = client
    run = shell.run_cell_magic("benchkit", f"etl --tag variant=A --store {tmp_path}/s", CELL)

    assert isinstance(run, Run)
    assert (run.workload, run.outcome, run.tags) == ("etl", "ok", {"variant": "A"})
    assert run.metrics["n_tasks"] == 1
    assert shell.user_ns["answer"] == 3
    assert len(Store(tmp_path / "s")) == 1


def test_repeats_are_blocks_of_one_experiment(shell, client, tmp_path):
    shell.user_ns["client"] = client
    table = shell.run_cell_magic("benchkit", f"-n 3 --store {tmp_path}/s", CELL)
    runs = Store(tmp_path / "s").runs()

    assert len(table) == 3
    assert sorted(runs["block"]) == [0, 1, 2]
    assert runs["experiment"].nunique() == 1


def test_cell_that_fails_is_a_failed_run(shell, client, tmp_path):
    shell.user_ns["client"] = client
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("benchkit", f"--store {tmp_path}/s", "1 / 0")

    (outcome,) = Store(tmp_path / "s").runs()["outcome"]
    assert outcome == "failed"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("--repeat many", "argument -n/--repeat: invalid int value: 'many'"),
        ("--tag variant", "--tag NAME=VALUE"),
        ("-n 0", "repeats"),
        ("--colour red", "unrecognized arguments: --colour"),
    ],
)
def test_wrong_options_are_one_line(shell, client, tmp_path, monkeypatch, capsys, line, problem):
    monkeypatch.chdir(tmp_path)
    assert shell.run_cell_magic("benchkit", line, CELL) is None
    output = capsys.readouterr().out
    assert problem in output
    assert output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
