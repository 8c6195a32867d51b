import os
import resource
import subprocess
import sys

import psutil
import pytest

from benchkit.measure.errors import UsageError
from benchkit.measure.recording import Recording, RecordingWriter, waits_for_adoption


def test_unfinished_recording_is_readable(tmp_path):
    writer = RecordingWriter(tmp_path, "one")
    writer.head(workload="a.b")
    writer.segment({"tasks": {"start": b"\0" * 16}, "keys": ["x", "y"], "state": {"t_on": 1.0}})
    writer.segment({"tasks": {"start": b"\0" * 8}, "keys": ["z"]})

    read = Recording.read(writer.path)

    assert not read.finished
    assert read.column("tasks", "start", "d").tolist() == [0.0, 0.0, 0.0]
    assert read.rows("keys") == ["x", "y", "z"]
    assert read.last("state") == {"t_on": 1.0}


def test_damaged_segment_is_a_problem(tmp_path):
    writer = RecordingWriter(tmp_path, "one")
    writer.head(workload="a.b")
    writer.segment({"keys": ["x"]})
    writer.segment({"keys": ["y"]})
    (writer.path / "000001.json").write_text("{broken")
    writer.tail(outcome="ok")

    read = Recording.read(writer.path)

    assert read.rows("keys") == ["y"]
    assert read.problems[0].startswith("000001.json")


FULL_DISK = """
import sys
from pathlib import Path
from benchkit.measure.recording import RecordingWriter

folder = Path(sys.argv[1])
writer = RecordingWriter(folder, "one")
writer.head(workload="a.b")
writer.segment({"keys": ["x"]})
if sys.argv[2] == "mounted":
    with open(folder / "other", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
try:
    writer.segment({"keys": ["y" * 200_000]})
except OSError as error:
    print(error.strerror)
writer.tail(outcome="ok", evidence={"stacks": "s" * 200_000}, capture_errors=["before"])
"""


def test_tail_is_written_to_full_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    try:
        done = subprocess.run(
            [sys.executable, "-c", FULL_DISK, str(folder), "mounted" if mounted else "limited"],
            preexec_fn=None if mounted else limit,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        read = Recording.read(folder / "one.recording")
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)

    message = "No space left on device" if mounted else "File too large"
    assert done.stdout.strip() == message
    assert read.finished
    assert read.rows("keys") == ["x"]
    assert read.tail["outcome"] == "ok"
    assert read.tail["capture_errors"] == ["before", f"evidence: {message}"]


def test_writer_check_sends_no_signal(tmp_path, monkeypatch):
    """On Windows, `os.kill(pid, 0)` is Ctrl-C."""
    writer = RecordingWriter(tmp_path, "one")
    writer.head(workload="a.b")
    writer.tail(outcome="ok")
    monkeypatch.setattr(os, "kill", None)

    for exists in (True, False):
        monkeypatch.setattr(psutil, "pid_exists", {os.getpid(): exists}.__getitem__)
        assert waits_for_adoption(writer.path) is not exists


def test_recording_of_another_format_is_refused(tmp_path):
    writer = RecordingWriter(tmp_path, "one")
    writer.head(workload="a.b")
    head = writer.path / "head.json"
    head.write_text(head.read_text().replace('"format": 3', '"format": 1'))

    with pytest.raises(UsageError, match="of format 1, and this benchkit reads format 3"):
        Recording.read(writer.path)
