"""The history of Dask: which block is next, the mean of all workloads, nights from releases."""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.commands import run_forked

from validation.dask_history.history import (
    CONTROL,
    PYARROW_12,
    RELEASES,
    night_of,
    night_store,
    suite,
)

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import dask_history  # noqa: E402
import dask_history_page  # noqa: E402

ARMS = [release for release in RELEASES if release != CONTROL]


def history(**planted):
    """Return a history of all releases in blocks of three; `planted`: workload -> step in 2025."""
    rng = np.random.default_rng(0)
    rows = []
    for block in range(0, len(ARMS), 3):
        session = block // 18  # the second one is on a slower machine
        for workload in ("a.steady", "a.stepped"):
            for release in (CONTROL, *ARMS[block : block + 3]):
                is_later = release != CONTROL and night_of(release) >= "2025"
                step = planted.get(workload.partition(".")[2], 1.0) if is_later else 1.0
                rows.append(
                    {
                        "release": release, "experiment": f"e{block:02}", "workload": workload,
                        "outcome": "ok", "error": None,
                        "quality": "{}",
                        "started": pd.Timestamp("2026-11-28") + pd.Timedelta(hours=2 * session),
                        "duration": 2.0 * (1 + session) * step * rng.lognormal(sigma=0.01),
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def test_next_block_measures_each_release_once_in_a_pass():
    data = pd.DataFrame({"release": [], "workload": [], "experiment": []})
    blocks, pairs = [], set()
    for number in range(60):
        block = dask_history.next_block(data, RELEASES)
        blocks.append(block)
        pairs |= set(pairwise(block))
        new = pd.DataFrame(
            {"release": [*block, CONTROL], "workload": "a.x", "experiment": str(number)}
        )
        data = pd.concat([data, new])
        counts = data[data["release"] != CONTROL].groupby("release").size()
        if len(counts) == len(ARMS) and counts.min() == 3:
            break

    assert counts.max() == 3, "three passes measure each release three times"
    assert pairs == set(pairwise(ARMS)), "each border is inside of a block"
    assert ARMS.index(blocks[1][0]) - ARMS.index(blocks[0][0]) == 9, "blocks are spread at first"


def test_suite_is_the_geometric_mean_relative_to_the_control():
    found = suite(history(stepped=1.44), "duration")

    assert list(found.index) == ARMS
    assert found.loc["2025.4.1", "ratio"] == pytest.approx(1.2, rel=0.03)
    assert found.loc["2024.5.2", "ratio"] == pytest.approx(1.0, rel=0.03)
    assert (found["low"] < found["ratio"]).all()
    assert (found["ratio"] < found["high"]).all()
    assert (found["high"] / found["low"]).max() < 1.1
    assert (found["n"] == 2).all()


def test_disturbed_durations_are_left_out(tmp_path):
    data = history()
    chosen = (data["workload"] == "a.steady") & (data["release"] == "2025.4.1")
    data.loc[chosen, ["duration", "quality"]] = [20.0, '{"duration": "disturbed"}']

    assert suite(data, "duration").loc["2025.4.1", "n"] == 1
    assert suite(data, "duration")["ratio"].max() < 1.05
    runs = night_store(data, tmp_path / "store").runs()
    night = runs[(runs["dask"] == "2025.4.1") & (runs["workload"] == "a.steady")]
    assert night["duration"].isna().all()


def test_releases_of_a_block_that_was_repeated_in_part_count_once():
    data = pd.DataFrame(
        {
            "release": [*ARMS[:3], *ARMS[:3], ARMS[0]],
            "workload": ["a.x"] * 3 + ["a.y"] * 3 + ["a.x"],
            "experiment": ["e1"] * 6 + ["e2"],
        }
    )

    assert dask_history.next_block(data, RELEASES) != ARMS[:3]
    data = pd.concat([data, data.assign(experiment="e3")])
    assert dask_history.next_block(data, RELEASES) != ARMS[:3]


def test_judged_history_finds_the_release_of_a_step(tmp_path):
    changes = dask_history_page.judged(history(stepped=1.3), tmp_path / "store")

    (change,) = [each for each in changes if each["workload"] == "a.stepped"]
    assert len(changes) == 1
    assert dask_history_page._release(change["night"]) == "2025.1.0"
    assert change["ratio"] == pytest.approx(1.3, rel=0.03)


def test_release_of_a_night_is_read_back():
    releases = [name for name in RELEASES if not name.endswith(PYARROW_12)]

    assert [dask_history_page._release(night_of(name)) for name in releases] == releases


def test_night_store_has_a_night_for_each_release(tmp_path):
    runs = night_store(history(), tmp_path / "store").runs()

    assert len(runs) == 4 * (len(ARMS) - 1)  # two workloads, the release and its control
    assert not runs["dask"].str.endswith(PYARROW_12).any()
    nights = runs.groupby("started")["environment"].agg(set)
    assert nights.tolist() == [{"dask", "control"}] * (len(ARMS) - 1)


@pytest.mark.parametrize("script", ["dask_history", "dask_history_page", "dask_reported"])
def test_script_has_help(script):
    done = run_forked([f"{script}.py", "--help"], ROOT / "benchmarks")

    assert done.returncode == 0, done.stderr
    assert "--" in done.stdout
