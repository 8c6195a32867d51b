"""The checks of the rechunk workloads accept the true result and reject wrong ones."""

from dataclasses import replace

import pytest
from helpers.wrong_results import FINGERPRINT, TINY, prove, proved_here, wrong_for

WRONG = {
    "rechunk.tiles_to_rows": FINGERPRINT,
    "rechunk.swap_axes_out_of_core": FINGERPRINT,
    "rechunk.adjacent_groups": FINGERPRINT,
    "rechunk.heal_oversplit": FINGERPRINT,
    "rechunk.pancake_to_pencil": FINGERPRINT,
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, wrong_for(variant, WRONG), replace(TINY, fraction=0.1))
