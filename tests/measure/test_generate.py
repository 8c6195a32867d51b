import subprocess
import sys

import cloudpickle
import numpy as np
import pytest
from dask.sizeof import sizeof

from benchkit.measure.data.random import WIDE, frame_maker, random_array, random_frame
from benchkit.measure.errors import InvalidParameterError


def test_random_array_is_uniform_and_the_same_for_one_seed():
    first, again, other = (
        random_array((300, 200), chunks=(100, 100), seed=seed).compute() for seed in (1, 1, 2)
    )

    assert (first == again).all()
    assert not (first == other).any()
    assert abs(first.mean() - 0.5) < 5 * np.sqrt(1 / 12 / first.size)


def test_compressible_data_has_a_zero_in_every_second_place():
    plain = random_array((40, 30), chunks=(20, 30), seed=3).compute()
    zeroed = random_array((40, 30), chunks=(20, 30), data="compressible", seed=3).compute()

    flat = zeroed.ravel()
    assert (flat[::2] == 0).all()
    assert (flat[1::2] == plain.ravel()[1::2]).all()


def test_frame_has_the_bytes_asked_for_and_no_partition_like_another():
    frame = random_frame(4e6, {"float": 5, "str": 2}, partition_bytes=1e6, seed=0)

    parts = [frame.get_partition(i).compute() for i in range(frame.npartitions)]

    assert frame.npartitions == 4
    assert sum(map(sizeof, parts)) == pytest.approx(4e6, rel=0.1)
    assert len({part.float_0.iloc[0] for part in parts}) == 4


@pytest.mark.parametrize(
    ("columns", "freq", "row_bytes"),
    [({"float": 20}, None, 160), (WIDE, "10ms", 858), ({"str": 1, "category": 3}, None, 20)],
)
def test_the_length_of_a_frame_follows_from_its_columns_alone(columns, freq, row_bytes):
    # Measured with `dask.sizeof` it differed between releases, and with pandas 2 between calls.
    frame = random_frame(2000 * row_bytes, columns, partition_bytes=1000 * row_bytes, freq=freq)

    assert [len(frame.get_partition(i)) for i in range(frame.npartitions)] == [1000, 1000]


def test_frame_of_a_time_series_knows_its_divisions():
    frame = random_frame(3e6, WIDE, partition_bytes=1e6, freq="10ms", seed=0)

    for i in range(frame.npartitions):
        index = frame.get_partition(i).compute().index
        assert index[0] == frame.divisions[i]
        assert index[-1] <= frame.divisions[i + 1]
    assert index[-1] == frame.divisions[-1]


def test_partitions_are_the_same_wherever_and_whenever_they_are_made():
    frame = random_frame(2e6, {"float": 3}, partition_bytes=1e6, seed=5)

    alone = frame.get_partition(1).compute(scheduler="sync")
    together = frame.compute(scheduler="sync")

    assert alone.equals(together.iloc[-len(alone) :])


def test_tasks_do_not_need_benchkit_on_the_worker(tmp_path):
    (tmp_path / "task").write_bytes(cloudpickle.dumps(frame_maker(WIDE, 10, freq="10ms")))
    program = (
        "import sys, pickle; sys.modules['benchkit'] = None;"
        "print(pickle.load(open('task', 'rb'))(1).shape)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.stdout == "(10, 100)\n", done.stderr


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: random_array((2, 2), chunks=1, data="zeros"), "uncompressible, compressible"),
        (lambda: frame_maker({"floot": 1}, 10), "float"),
    ],
)
def test_unknown_kinds_are_refused_with_those_there_are(call, says):
    with pytest.raises(InvalidParameterError, match=says):
        call()
