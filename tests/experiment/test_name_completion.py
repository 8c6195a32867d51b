"""Tab completion of names of workloads, by the completer of IPython."""

import dask
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

WORKLOADS = """
from benchkit import workload

@workload(category="mine", variants={"method": ["apply", "sum"]})
def etl(client, scale, *, method):
    "Own work."

@workload(category="mine")
def etl_small(client, scale):
    "Own work."
"""
NAMES = ["mine.etl", "mine.etl[method=apply]", "mine.etl[method=sum]", "mine.etl_small"]


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Return a session of IPython with the extension, in a folder with workloads."""
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "own.py").write_text(WORKLOADS)
    monkeypatch.chdir(tmp_path)
    session = InteractiveShell.instance()
    session.run_line_magic("load_ext", "benchkit")
    session.run_cell("import subprocess, benchkit, benchkit as bk; from benchkit import run")
    yield session
    InteractiveShell.clear_instance()


def complete(shell, code):
    """Return the codes that a press of Tab at the end of the code offers."""
    with provisionalcompleter():
        found = list(shell.Completer.completions(code, len(code)))
    return [code[: each.start] + each.text + code[each.end :] for each in found]


@pytest.mark.parametrize(("code", "names"), [
    ('benchkit.run("mine.e', NAMES),
    ("bk.nightly('mine.e", NAMES),
    ('run("mine.etl[', NAMES[1:3]),
    ('run("mine.etl[method=a', NAMES[1:2]),
    ('run("mine.etl[method=sum]", "mine.etl_', NAMES[3:]),
    ('runs = benchkit.run(\n    "mine.etl_', NAMES[3:]),
    ('benchkit.ab("baseline", "mine.etl_', NAMES[3:]),
    ('benchkit.ab(["baseline", "release"], "mine.etl_', NAMES[3:]),
])  # fmt: skip
def test_completion_offers_names_of_workloads(shell, code, names):
    head = code.rpartition('"')[0] + '"' if '"' in code else code.rpartition("'")[0] + "'"

    assert complete(shell, code) == [head + name for name in names]


@pytest.mark.parametrize("code", [
    'subprocess.run("mine.e',
    'benchkit.ab("mine.e',
    'benchkit.run(select="mine.e',
    'benchkit.run("mine.etl_small") or print("mine.e',
    'print("mine.e',
])  # fmt: skip
def test_completion_offers_no_names_elsewhere(shell, code):
    assert not [text for text in complete(shell, code) if "mine.etl" in text.rpartition('"')[2]]


def test_completion_without_the_configured_folder_is_empty(shell, tmp_path, capsys):
    with dask.config.set({"benchkit.workloads": str(tmp_path / "none")}):
        assert complete(shell, 'benchkit.run("mine.e') == []

    assert capsys.readouterr().err == ""


def test_extension_adds_completion_once(shell):
    shell.run_line_magic("reload_ext", "benchkit")
    shell.run_line_magic("reload_ext", "benchkit")

    assert len(shell.Completer.custom_matchers) == 1
