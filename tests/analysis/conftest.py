from zlib import crc32

import numpy as np
import pytest


@pytest.fixture
def rng(request):
    """Return a random generator seeded by the name of the test."""
    return np.random.default_rng(crc32(request.node.name.encode()))
