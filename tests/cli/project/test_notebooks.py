"""Listing and copying of the shipped notebooks."""

import json

from click.testing import CliRunner

from benchkit.cli.main import benchkit as main
from benchkit.experiment.paths import shipped


def test_notebooks_list_has_titles():
    rows = json.loads(CliRunner().invoke(main, ["notebooks", "list", "--json"]).stdout)

    assert {"explore", "history", "run", "ab", "nightly", "bisect", "measure"} <= {
        r["name"] for r in rows
    }
    assert all(row["title"] for row in rows)


def test_notebooks_copy_keeps_existing_files(tmp_path):
    folder = tmp_path / "new" / "notebooks"
    folder.mkdir(parents=True)
    (folder / "ab.ipynb").write_text("mine")

    done = CliRunner().invoke(main, ["notebooks", "copy", str(folder)])

    assert done.exit_code == 0
    assert "ab.ipynb exists" in done.stderr
    assert (folder / "ab.ipynb").read_text() == "mine"
    original = shipped("notebooks") / "explore.ipynb"
    assert (folder / "explore.ipynb").read_bytes() == original.read_bytes()


def test_notebooks_copy_names_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()

    done = CliRunner().invoke(main, ["notebooks", "copy", str(tmp_path / "file" / "x")])

    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "cannot be written: Not a directory" in done.stderr
