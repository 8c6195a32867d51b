"""Samples of the memory of this process."""

import subprocess
import sys
from array import array

import psutil
import pytest

from benchkit.measure.capture.memory_sampler import MemorySampler, process_number


def test_sample_reads_memory_of_this_process():
    sampler = MemorySampler()
    block = b"x" * 100_000_000
    sampler.sample()

    rss = psutil.Process().memory_info().rss
    assert sampler.samples[-1][1] == pytest.approx(rss, abs=2_000_000)
    assert sampler.samples[-1][1] - sampler.samples[0][1] > len(block) * 0.9
    sampler.close()


def test_samples_integrate_memory_over_time():
    sampler = MemorySampler()
    for _ in range(3):
        sampler.sample()
    (t0, m0, a0, _), (t1, m1, a1, _) = list(sampler.samples)[:2]

    assert a0 == 0.0
    # Times are seconds since 1970, which have steps of 0.24 µs.
    assert a1 == pytest.approx((m0 + m1) / 2 * (t1 - t0), rel=1e-3, abs=5e-7 * m1)
    sampler.close()


def test_points_keep_the_newest_sample_of_each_cell_and_peaks():
    sampler = MemorySampler()
    sampler.samples.clear()
    nan = float("nan")
    rows = [
        (10.0, 1.0, 0.0, nan),
        (10.01, 2.0, 0.1, nan),
        (10.02, 3.0, 0.2, 9.0),
        (10.3, 4, 1, nan),
    ]
    sampler.samples.extend(rows)

    values = array("d")
    values.frombytes(sampler.points(9.0, interval_s=2.0))

    assert values[1::4].tolist() == [4.0, 3.0]
    assert sampler.points(10.3, interval_s=2.0) == b""
    sampler.close()


def test_close_closes_the_file():
    sampler = MemorySampler()
    sampler.close()

    with pytest.raises(ValueError, match="closed"):
        sampler.sample()


def test_sampler_works_without_sysconf():
    """Windows has neither `os.sysconf` nor `/proc`."""
    code = (
        "import distributed, os, psutil\n"
        "del os.sysconf\n"
        "from benchkit.measure.capture.memory_sampler import MemorySampler\n"
        "print(MemorySampler().samples[0][1] > 1e6)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "True\n", done.stderr


def test_process_number_differs_between_processes():
    code = (
        "from benchkit.measure.capture.memory_sampler import process_number\n"
        "print(process_number())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert process_number() == process_number()
    assert int(done.stdout) != process_number()
