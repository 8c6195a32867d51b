from zlib import crc32

import numpy as np
import pytest


@pytest.fixture
def rng(request):
    """A generator of its own for each test, the same every time."""
    return np.random.default_rng(crc32(request.node.name.encode()))
