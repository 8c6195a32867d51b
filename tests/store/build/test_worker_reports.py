"""Transfers and call stacks of a run, from reports of workers that left or stayed."""

import zlib

import numpy as np

from benchkit.store.build.run_from_recording import run_from_recording
from validation.synthetic_recordings import ON, record, segment, stacks, worker

FIELDS = ("count", "bytes", "bytes_compressed", "seconds")


def pairs_of(transfers):
    """Return count, bytes, compressed bytes and seconds by sender and receiver."""
    ends = zip(
        transfers["source"].values.tolist(), transfers["destination"].values.tolist(), strict=True
    )
    rows = zip(*(transfers[name].values.tolist() for name in FIELDS), strict=True)
    return {pair: list(row) for pair, row in zip(ends, rows, strict=True)}


def test_transfers_use_remaining_end_if_a_worker_left(tmp_path):
    a, b, c = (f"tcp://10.0.0.1:{index}" for index in range(3))
    reports = {
        "0": {"transfers": [[1, b, 3, 30.0, 15.0, 0.3], [0, c, 4, 40.0, float("nan"), 0.4]]},
        "1": {"transfers": [[0, a, 3, 30.0, float("nan"), 0.5], [1, "Client-1", 1, 9.0, 8.0, 0.1]]},
    }
    workers = [worker(0), worker(1), worker(2, left=ON + 5)]
    tree = run_from_recording(record(tmp_path, segment(workers=workers, reports=reports)))
    transfers = tree["transfers"].to_dataset()

    pairs = pairs_of(transfers)
    assert set(pairs) == {(0, 1), (2, 0), (1, -1)}, "only pairs with transfers"
    assert pairs[0, 1] == [3, 30, 15, 0.5], "seconds measured by the receiver"
    np.testing.assert_array_equal(pairs[2, 0], [4, 40, np.nan, 0.4])
    assert pairs[1, -1] == [1, 9, 8, 0.1], "to a client"
    assert transfers["incomplete"].values.tolist() == [2]
    assert transfers.attrs["unheard"] == 1


def test_transfers_use_partial_reports_of_workers_that_left(tmp_path):
    a, b, c = (f"tcp://10.0.0.1:{index}" for index in range(3))
    nan = float("nan")
    parts = [
        [0, {"transfers": [[1, b, 2, 20.0, 10.0, 0.2]], "logs": [[ON + 1, "WARNING", "early"]]}],
        [0, {"transfers": [[1, b, 1, 10.0, 5.0, 0.1], [1, c, 1, 7.0, 7.0, 0.1]]}],
        [1, {"transfers": [[0, a, 2, 20.0, nan, 0.4], [1, c, 5, 50.0, 9.0, 0.5]]}],
        [2, {"transfers": [[0, b, 1, 10.0, nan, 0.1]]}],
    ]
    reports = {"2": {"transfers": [[0, b, 5, 50.0, nan, 0.6]], "logs": []}}
    workers = [worker(0, left=ON + 5), worker(1, left=ON + 5), worker(2)]
    first, last = segment(workers=workers, told=parts[:2]), segment(workers=workers, told=parts[2:])
    last["reports"] = reports
    tree = run_from_recording(record(tmp_path, first, last))
    transfers = tree["transfers"].to_dataset()

    pairs = pairs_of(transfers)
    counts = {pair: row[0] for pair, row in pairs.items()}
    assert counts == {
        (0, 1): 3,  # both left, and the sender had reported more
        (1, 2): 6,  # the receiver's report is complete, in two parts
        (0, 2): 1,  # the receiver's complete report lacks it, the sender's has it
    }
    assert all(np.isnan(row[2]) for row in pairs.values()), "the senders left"
    assert transfers["incomplete"].values.tolist() == [0, 1]
    assert transfers.attrs["unheard"] == 2
    assert tree["logs/text"].values.tolist() == ["early"]


def test_transfers_count_compressed_bytes_if_acknowledged(tmp_path):
    a, b, c = (f"tcp://10.0.0.1:{index}" for index in range(3))
    nan = float("nan")
    reports = {
        "0": {
            "transfers": [
                [1, b, 2, 20.0, 10.0, 0.2],
                [2, b, 1, 10.0, 5.0, 0.1],
                [1, c, 2, 20.0, 10.0, 0.2],
                [2, "Client-1", 1, 9.0, 8.0, 0.1],
            ]
        },
        "1": {"transfers": [[0, a, 3, 30.0, nan, 0.3], [2, a, 1, 5.0, 5.0, 0.1]]},
        "2": {"transfers": [[0, a, 3, 30.0, nan, 0.3]]},
    }
    workers = [worker(0), worker(1), worker(2)]
    tree = run_from_recording(record(tmp_path, segment(workers=workers, reports=reports)))

    pairs = pairs_of(tree["transfers"].to_dataset())
    assert set(pairs) == {(0, 1), (0, 2), (0, -1)}, "the receiver of the other counted none"
    assert pairs[0, 1] == [3, 30, 15, 0.3]
    assert pairs[0, -1] == [1, 9, 8, 0.1]
    np.testing.assert_array_equal(pairs[0, 2], [3, 30, np.nan, 0.3])


def test_profile_merges_call_stacks_of_workers(tmp_path):
    deep = stacks(
        frames=[["g", "", 0], ["f", "x.py", 3], ["h", "x.py", 9]],
        nodes=[-1, 0, 5, 0, 1, 5, 1, 2, 2],
    )
    flat = stacks(frames=[["f", "x.py", 3], ["g", "", 0]], nodes=[-1, 1, 4, 0, 0, 4])
    reports = {"0": {"profile": deep}, "1": {"profile": flat}, "2": {"profile": b""}}
    tree = run_from_recording(record(tmp_path, segment(reports=reports)))
    profile = tree["profile"].to_dataset()

    lines = zlib.decompress(profile["code_blob"].values.tobytes()).decode().split("\n")
    names = [lines[code].split("\t") for code in profile["code"].values]
    assert names == [["g", "", "0"], ["f", "x.py", "3"], ["h", "x.py", "9"]]
    assert profile["parent"].values.tolist() == [-1, 0, 1]
    assert profile["count"].values.tolist() == [9, 9, 2]
    assert profile.attrs["n_workers"] == 3
