"""Checks of the communication workloads."""

from types import SimpleNamespace

import pytest
from helpers.wrong_results import futures_with, item, prove, proved_here


def back_with(change):
    return lambda result: SimpleNamespace(back=change(result.back), rates=result.rates)


WRONG = {
    "comm.scatter_gather": {
        "two arrays have changed places": item("back", lambda back: [back[1], back[0], *back[2:]]),
        "a byte is another": item("back", lambda back: [back[0] ^ 1, *back[1:]]),
        "an array is lost": item("back", lambda back: back[:-1]),
    },
    "comm.worker_to_worker": {
        "two arrays have changed places": futures_with(lambda made: [made[1], made[0], *made[2:]]),
        "an array was never sent": futures_with(lambda made: made[:-1]),
    },
    "comm.broadcast_replicate": {
        "a worker has no copy": item("most", lambda most: [most[0] - 1, *most[1:]]),
        "an array was lost": item("left", lambda left: [0, *left[1:]]),
        "copies were kept": item("left", lambda left: [2, *left[1:]]),
        "arrays have changed places": futures_with(lambda futures: futures[::-1]),
    },
    "comm.protocol": {
        "an object is lost": back_with(lambda back: back[:-1]),
        "an object is another": back_with(lambda back: [back[1], back[1], *back[2:]]),
        "it comes back as something else": back_with(lambda back: [*back[:-1], "text"]),
    },
    "comm.connect_rate": {
        "a message is another's": item("small", lambda sums: [sums[1], sums[0], *sums[2:]]),
        "a message is lost": item("large", lambda sums: sums[:-1]),
        "a connection failed": item("connected", lambda count: count - 1),
    },
    "comm.compression": {  # for all variants: data that compress, and data that do not
        "an array is garbled": item("sums", lambda sums: [sums[0] ^ 1, *sums[1:]]),
        "an array is lost": item("sums", lambda sums: sums[:-1]),
        "a pass is lost": item("seconds", lambda seconds: seconds[:-1]),
        "nothing was sent": item("wire_bytes", 0),
    },
}
WRONG |= {
    f"comm.compression[compression={name},data=compressible]": {
        **WRONG["comm.compression"],
        "nothing was compressed": item("wire_bytes", lambda nbytes: 2 * nbytes),
    }
    for name in ("lz4", "zstd")
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG)
