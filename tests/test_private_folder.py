"""Temporary folders that killed processes leave."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchkit import private_folder as module
from benchkit.private_folder import private_folder

HOLDER = "import benchkit.private_folder as p; f = p.private_folder(); print(f.name); input()"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return the folder for temporary files of this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


def test_private_folder_is_readable_by_its_user_only(temporary):
    with private_folder() as name:
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o700
        assert Path(name).parent == temporary
    assert list(temporary.iterdir()) == []


def test_private_folder_of_killed_process_is_removed(temporary):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        held = Path(holder.stdout.readline().strip())
        (held / "dask.yaml").write_text("token: abc")
        (temporary / "benchkit-other-99999999-x").mkdir()  # of another host

        with private_folder():
            assert held.exists()
        holder.kill()
        holder.wait()
        with private_folder() as name:
            assert sorted(temporary.iterdir()) == sorted(
                [Path(name), temporary / "benchkit-other-99999999-x"]
            )


def test_private_folder_of_killed_process_is_removed_without_user_ids(temporary, monkeypatch):
    """Windows has no `os.geteuid`."""
    monkeypatch.setattr(module, "os", SimpleNamespace(getpid=lambda: 999_999_999))
    left = private_folder()
    monkeypatch.setattr(module, "os", SimpleNamespace(getpid=os.getpid))

    with private_folder() as name:
        assert list(temporary.iterdir()) == [Path(name)]
    left.cleanup()
