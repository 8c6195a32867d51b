"""States of nightly series outlast a night."""

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest

from benchkit.analysis.changepoints import detect_nights
from benchkit.experiment.nightly import detector_cache
from benchkit.experiment.nightly.detector_cache import read_checkpoints, write_checkpoints

STORE = SimpleNamespace(path="store")


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHKIT_CACHE", str(tmp_path))
    values = np.random.default_rng(1).lognormal(sigma=0.01, size=(20, 60))
    values[:, 40:] *= 1.2
    found = detect_nights(values).checkpoints
    assert found.events.row.size == 20
    write_checkpoints(STORE, found)
    return found


def test_read_checkpoints_returns_what_was_written(checkpoints):
    again = read_checkpoints(STORE)

    for owner, other in ((checkpoints, again), (checkpoints.events, again.events)):
        for field in fields(owner):
            if field.name != "events":
                value = getattr(other, field.name)
                np.testing.assert_array_equal(value, getattr(owner, field.name))
                assert value.dtype == getattr(owner, field.name).dtype
    assert read_checkpoints(SimpleNamespace(path="other")) is None


def test_read_checkpoints_ignores_those_of_other_rules(checkpoints, monkeypatch):
    monkeypatch.setattr(detector_cache, "_rules", lambda: "other")

    assert read_checkpoints(STORE) is None


@pytest.mark.parametrize("n_bytes", [0, 10, 3000])
def test_read_checkpoints_ignores_damaged_file(n_bytes, checkpoints, tmp_path):
    (file,) = (tmp_path / "detector").iterdir()
    file.write_bytes(file.read_bytes()[:n_bytes])

    assert read_checkpoints(STORE) is None
