"""Preparation of workloads that shuffle frames."""

from __future__ import annotations


def warm_up_shuffle():
    """Merge a few rows: the first P2P shuffle of a cluster needs seconds for imports."""
    from benchkit.measure import random_frame

    frame = random_frame(4e4, {"int": 2}, partition_bytes=1e4)
    frame.merge(frame, on="int_0", how="inner").map_partitions(len).compute()
