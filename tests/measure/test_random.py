import subprocess
import sys

import cloudpickle
import numpy as np
import pytest
from dask.sizeof import sizeof

from benchkit.measure.data.random import WIDE, frame_maker, random_array, random_frame
from benchkit.measure.errors import InvalidParameterError


def test_random_array_is_uniform_and_reproducible():
    first, again, other = (
        random_array((300, 200), chunks=(100, 100), seed=seed).compute() for seed in (1, 1, 2)
    )

    assert (first == again).all()
    assert not (first == other).any()
    assert abs(first.mean() - 0.5) < 5 * np.sqrt(1 / 12 / first.size)


def test_compressible_array_alternates_with_zeros():
    plain = random_array((40, 30), chunks=(20, 30), seed=3).compute()
    zeroed = random_array((40, 30), chunks=(20, 30), data="compressible", seed=3).compute()

    flat = zeroed.ravel()
    assert (flat[::2] == 0).all()
    assert (flat[1::2] == plain.ravel()[1::2]).all()


def test_random_frame_has_requested_size():
    frame = random_frame(4e6, {"float": 5, "str": 2}, partition_bytes=1e6, seed=0)

    parts = [frame.get_partition(i).compute() for i in range(frame.npartitions)]

    assert frame.npartitions == 4
    # Python objects, the texts of Dask of 2023, are smaller than planned.
    rel = 0.25 if parts[0].str_0.dtype == object else 0.1
    assert sum(map(sizeof, parts)) == pytest.approx(4e6, rel=rel)
    assert len({part.float_0.iloc[0] for part in parts}) == 4


@pytest.mark.parametrize(
    ("columns", "freq", "row_bytes"),
    [({"float": 20}, None, 160), (WIDE, "10ms", 858), ({"str": 1, "category": 3}, None, 20)],
)
def test_random_frame_length_depends_on_columns_only(columns, freq, row_bytes):
    # Measured with `dask.sizeof` it differed between releases, and with pandas 2 between calls.
    frame = random_frame(2000 * row_bytes, columns, partition_bytes=1000 * row_bytes, freq=freq)

    assert [len(frame.get_partition(i)) for i in range(frame.npartitions)] == [1000, 1000]


def test_random_frame_with_freq_has_divisions():
    frame = random_frame(3e6, WIDE, partition_bytes=1e6, freq="10ms", seed=0)

    for i in range(frame.npartitions):
        index = frame.get_partition(i).compute().index
        assert index[0] == frame.divisions[i]
        assert index[-1] <= frame.divisions[i + 1]
    assert index[-1] == frame.divisions[-1]


def test_random_frame_partitions_are_reproducible():
    frame = random_frame(2e6, {"float": 3}, partition_bytes=1e6, seed=5)

    alone = frame.get_partition(1).compute(scheduler="sync")
    together = frame.compute(scheduler="sync")

    assert alone.equals(together.iloc[-len(alone) :])


def test_frame_maker_runs_without_benchkit(tmp_path):
    (tmp_path / "task").write_bytes(cloudpickle.dumps(frame_maker(WIDE, 10, freq="10ms")))
    program = (
        "import sys, pickle; sys.modules['benchkit'] = None;"
        "print(pickle.load(open('task', 'rb'))(1).shape)"
    )

    process = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert process.stdout == "(10, 100)\n", process.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random_array((2, 2), chunks=1, data="zeros"), "uncompressible, compressible"),
        (lambda: frame_maker({"floot": 1}, 10), "float"),
    ],
)
def test_unknown_kinds_are_rejected(call, message):
    with pytest.raises(InvalidParameterError, match=message):
        call()
