import pytest

from benchkit.simulation.graph import first_p2p


@pytest.mark.parametrize("name", [
    "shuffle-transfer", "shuffle-barrier-0a", "shuffle-p2p", "rechunk-transfer", "rechunk-barrier",
    "rechunk-p2p-0a", "hash-join-transfer-0a", "hash-join-p2p", "hashjoinp2p-0a", "p2pshuffle",
    "p2p-shuffle", "p2p-barrier",
])  # fmt: skip
def test_names_of_all_p2p_operations_are_recognised(name):
    others = ["sum-0a", "shuffle-split-0a", "rechunk-merge-0a", "join-0a"]
    assert first_p2p([*others, name]) == name
    assert first_p2p(others) is None
