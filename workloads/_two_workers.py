"""Two workers of a cluster, for transfers between them."""

from __future__ import annotations

from benchkit.measure.errors import ClusterError


def two_workers(client):
    """Return the addresses of the first two workers; fewer are an infrastructure error."""
    addresses = sorted(client.nthreads())
    if len(addresses) < 2:
        raise ClusterError("needs two workers; the cluster has one")
    return addresses[:2]
