"""What is wrong with a cluster and its named shapes, asked where their class is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.errors import InvalidClusterError

__all__ = ["cluster_troubles"]


def cluster_troubles(
    cluster: Mapping[str, Any], clusters: Mapping[str, Mapping[str, Any]]
) -> list[tuple[list[str], str]]:
    """Return what is wrong, each with where: ``["cluster"]`` or ``["clusters", name]``.

    Parameters
    ----------
    cluster, clusters : mapping
        As in an environment file. Nothing is started, and nobody needs to be logged in.
    """
    found: list[tuple[list[str], str]] = []
    try:
        spec = ClusterSpec.from_dict(cluster)
        spec.check(login=False)
    except InvalidClusterError as error:
        return [(["cluster"], str(error))]
    for name, shape in clusters.items():
        try:
            spec.merged(shape).check(login=False)
        except InvalidClusterError as error:
            found.append((["clusters", name], str(error)))
    return found


if __name__ == "__main__":
    # Whatever an import prints must not end up in the answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(cluster_troubles(*json.loads(sys.argv[1]))), file=answer)
