"""The checks of the rechunk workloads accept the true result and reject wrong ones."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.wrong_results import TINY, prove, proved_here, times

FINGERPRINT = {
    "a value is lost": lambda result: np.asarray(result) * [1 - 1e-7, 1],
    "blocks have changed places": lambda result: np.asarray(result) * [1, 1 + 1e-7],
    "not a number": times(np.nan),
}
WRONG = {
    "rechunk.tiles_to_rows": FINGERPRINT,
    "rechunk.swap_axes_out_of_core": FINGERPRINT,
    "rechunk.adjacent_groups": FINGERPRINT,
    "rechunk.heal_oversplit": FINGERPRINT,
    "rechunk.pancake_to_pencil": FINGERPRINT,
}


def wrong_for(variant):
    """Return wrong results for the last variant of a check; other variants test the true result."""
    is_proof = variant == variant.workload.variants()[-1]
    return WRONG if is_proof else {variant.workload.name: {}}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, wrong_for(variant), replace(TINY, fraction=0.1))
