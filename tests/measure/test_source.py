"""Source hashes of workloads: a renamed helper must not start a new history."""

import json
from pathlib import Path

import pytest

from benchkit.measure.discovery import collect

ROOT = Path(__file__).parents[2]
#: Workload name -> source hash before the files and names of benchkit were reorganized.
BEFORE = json.loads((ROOT / "tests/data/source_hashes.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def workloads():
    return collect(ROOT / "workloads").workloads


@pytest.mark.parametrize("name", sorted(BEFORE))
def test_source_hash_survives_renamed_helpers(name, workloads):
    assert workloads[name].source_hash == BEFORE[name]


def test_source_hash_ignores_docstrings(tmp_path):
    def hash_of(body):
        path = tmp_path / body[1] / "w.py"
        path.parent.mkdir()
        path.write_text(
            "from benchkit.measure import workload\n"
            f"def helper():\n    {body[0]}\n"
            "@workload(category='a')\ndef f(client):\n    return helper()\n"
        )
        return collect([path.parent]).workloads["a.f"].source_hash

    plain = hash_of(("return 1", "one"))

    assert hash_of(("'says'\n    return 1  # why", "two")) == plain
    assert hash_of(("return 2", "three")) != plain
