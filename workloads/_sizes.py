"""Sizes of datasets that recipes make."""

from __future__ import annotations

import math

import _recipes.tables  # noqa: F401  (declares the datasets)

from benchkit.measure import dataset

#: One machine makes the data, which would take half an hour for more threads.
MOST_THREADS = 50


def in_steps(value):
    """Return the largest of 1, 2, 5, 10, 20, 50, ... up to a value, for fewer datasets."""
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return max(step * power for step in (1, 2, 5) if step * power <= value * (1 + 1e-9))


def rideshare(scale):
    """Return trips of 0.05 x cluster memory, at 100 bytes each, in 10 files per thread."""
    rows = max(2000, scale.linear(0.05) // 100)
    return dataset("rideshare", rows=rows, files=10 * scale.threads)
