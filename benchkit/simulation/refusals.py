"""What cannot be simulated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["UnsupportedGraph", "check_graph"]

#: Beginnings of the names of tasks of P2P shuffles, which move data outside of the graph.
P2P_PREFIXES = (
    "shuffle-transfer",
    "shuffle-barrier",
    "shuffle-p2p",
    "rechunk-transfer",
    "rechunk-barrier",
    "rechunk-p2p",
    "hash-join-p2p",
    "hash-join-transfer",
    "p2pshuffle",
    "p2p-shuffle",
)


class UnsupportedGraph(ValueError):
    """A graph has tasks that cannot be simulated."""


def check_graph(keys: Iterable[Any]) -> None:
    """Refuse graphs with tasks of P2P shuffles."""
    for key in keys:
        name = str(key[0] if isinstance(key, tuple) else key).lstrip("('")
        if name.startswith(P2P_PREFIXES):
            raise UnsupportedGraph(
                f"task {name}: P2P shuffles move data outside of the graph and cannot be "
                "simulated; use the method tasks"
            )
