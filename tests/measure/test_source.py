"""Hashes of the shipped workloads, kept so that a renamed helper starts no history anew."""

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
