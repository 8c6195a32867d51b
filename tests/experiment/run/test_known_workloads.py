"""Known durations and noise: from runs to a file, and from the file to a plan."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchkit.analysis.run.noise import describe_detectable_changes
from benchkit.errors import UsageError
from benchkit.experiment.run.estimate import (
    FILE,
    known_durations,
    known_noise,
    load_known,
    noise_table,
)
from benchkit.experiment.run.experiment import Experiment
from benchkit.measure.workloads import Variant, Workload
from benchkit.store.store import Store
from validation.synthetic_runs import make_run


@pytest.fixture
def runs():
    random = np.random.default_rng(0)
    names = ["a.quiet"] * 40 + ["a.loud"] * 40 + ["a.new"] * 3
    spread = np.array([0.01] * 40 + [0.2] * 40 + [0.05] * 3)
    frame = pd.DataFrame(
        {
            "workload": names,
            "outcome": "ok",
            "started": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(83), unit="h"),
            "duration": 4.0 * np.exp(random.normal(0, spread)),
        }
    )
    return frame.sample(frac=1, random_state=0)


@pytest.fixture
def folder(runs, tmp_path):
    rows = noise_table(runs)
    rows = rows.astype(object).where(rows.notna(), None)
    (tmp_path / FILE).write_text(json.dumps(rows.to_dict("records")))
    return tmp_path


def test_load_known_reads_noise_table(runs, folder):
    known = load_known([folder, folder / "none"])

    assert sorted(known) == ["a.loud", "a.new", "a.quiet"]
    assert 0.006 < known["a.quiet"].noise < 0.015
    assert 0.12 < known["a.loud"].noise < 0.3
    assert np.isnan(known["a.new"].noise)
    assert known["a.quiet"].duration == pytest.approx(4.0, rel=0.02)
    assert known["a.quiet"].n_runs == 40


def noise_of(experiment):
    names = [variant.name for variant in experiment.variants]
    return known_noise(experiment.store, names, experiment.known_workloads)


def test_known_values_prefer_the_store(folder, tmp_path):
    variants = [
        Variant(Workload(print, "a", name), {}) for name in ("quiet", "loud", "new", "unknown")
    ]
    store = Store(tmp_path / "store")
    experiment = Experiment(store, arms=(), variants=variants, folders=[folder])
    assert sorted(noise_of(experiment)) == ["a.loud", "a.quiet"]
    assert known_durations(store, experiment.known_workloads)["a.new"] == pytest.approx(4, rel=0.2)
    smaller = replace(experiment, scale=0.5)
    assert noise_of(smaller) == known_durations(store, smaller.known_workloads) == {}

    for duration in np.exp(np.random.default_rng(1).normal(np.log(8), 0.05, 20)):
        store.add(make_run("a.quiet", groups=False, duration=duration))
    known = load_known([folder])
    assert known_durations(store, known)["a.quiet"] == pytest.approx(8, rel=0.1)
    assert noise_of(experiment)["a.quiet"] > 0.02 > known["a.quiet"].noise
    assert noise_of(experiment)["a.loud"] == known["a.loud"].noise


@pytest.mark.parametrize("content", ["{", '{"a": 1}', '[{"workload": "a.b"}]'])
def test_load_known_rejects_other_json(tmp_path, content):
    (tmp_path / FILE).write_text(content)

    with pytest.raises(UsageError, match=rf"{FILE}: not the output of `benchkit list noise"):
        load_known([tmp_path])


def test_describe_detectable_changes_names_noisy_workloads():
    text = describe_detectable_changes({"a.quiet": 0.01, "b.quiet": 0.02, "a.loud": 0.3}, n_runs=5)

    assert "5 runs a side detect a change of 2% in 0, of 5% in 2, of 10% in 2 of 3" in text
    assert text.endswith("3 workloads with known noise; noise of one run above 15%: a.loud 30%")
    assert "above" not in describe_detectable_changes({"a.quiet": 0.01}, n_runs=5)
    assert describe_detectable_changes({}, n_runs=5) == ""
