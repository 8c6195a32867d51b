"""Faults at each step of the operations of a store, by ``benchmarks/store_faults.py``."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "store_faults.py"


def run_harness(*arguments, before=""):
    """Run the harness in a process without threads, which can be forked."""
    code = f"import runpy, sys; sys.argv[1:] = {list(arguments)}\n{before}\n"
    code += f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=550)
    # Planted mistakes damage index files, which readers skip with a warning.
    assert "Traceback" not in done.stderr if before else done.stderr == ""
    return done


def test_store_keeps_everything_in_150_faults():
    done = run_harness("--times", "150", "--seed", "0", "--damage", "0")

    assert re.search(r"^150 injections, 0 with problems", done.stdout, re.M), done.stdout
    assert done.returncode == 0
    rows = {row[:26].strip(): row[26:].split() for row in done.stdout.splitlines()}
    killed, crashed, hangs = rows["kill"][2], rows["kill"][3], rows["kill"][4]
    assert int(killed) > 5
    assert crashed == hangs == "0"


def test_bucket_keeps_everything_in_10_faults():
    done = run_harness("--bucket", "--times", "10", "--seed", "0")

    assert re.search(r"^10 injections, 0 with problems", done.stdout, re.M), done.stdout
    assert done.returncode == 0
    rows = {row[:26].strip(): row[26:].split() for row in done.stdout.splitlines()}
    assert sum(int(rows[fault][1]) for fault in rows if fault.endswith("gone")) > 0, "none refused"
    assert all(row[3] == row[4] == "0" for row in rows.values() if len(row) == 6)


#: Faults in the code of the store that the harness must find.
MISTAKES = {
    "writes in place": """
from benchkit.store.files import LocalFiles
def create(self, name, data):
    path = self.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        import os
        os.fsync(file.fileno())
LocalFiles.create = create
""",
    "deletes before it writes": """
from benchkit.store import index
merge = index._merge
def delete_then_merge(files, segments, new):
    files.delete(*files.list("index/new"), *files.list("index"))
    return merge(files, segments, new)
index._merge = delete_then_merge
""",
    "lists before it writes": """
from benchkit.store.store import Store
from benchkit.store.storage import index_record, run_name
from benchkit.store.runfile import encode_run
def add(self, tree):
    run_id, record, data = encode_run(tree)
    self.create()
    self.index.add_existing(index_record(record, data))
    self.files.create(run_name(run_id), data)
    return run_id
Store.add = add
""",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_harness_finds_mistakes_in_the_store(mistake):
    done = run_harness("--times", "150", "--stop", "--damage", "0", before=MISTAKES[mistake])

    assert done.returncode == 1
    assert not re.search(", 0 with problems", done.stdout)


#: Names that are new in each run: of segments and records, and of the folder.
NEW_NAMES = r"store-faults-\w+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def test_harness_repeats_an_injection_by_its_number():
    arguments = ("--seed", "3", "--first", "17", "--times", "1", "--damage", "0")
    first, second = (re.sub(NEW_NAMES, "NEW", run_harness(*arguments).stdout) for _ in range(2))

    line = next(line for line in first.splitlines() if line.startswith("17: "))
    assert line in second.splitlines()
