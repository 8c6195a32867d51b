"""Check the cluster and the named shapes of an environment where their class is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.errors import InvalidClusterError


def cluster_problems(
    cluster: Mapping[str, Any], clusters: Mapping[str, Mapping[str, Any]]
) -> list[tuple[list[str], str]]:
    """Return each problem with its place: ``["cluster"]`` or ``["clusters", name]``."""
    problems: list[tuple[list[str], str]] = []
    try:
        spec = ClusterSpec.from_dict(cluster)
        spec.check(login=False)
    except InvalidClusterError as error:
        return [(["cluster"], str(error))]
    for name, shape in clusters.items():
        try:
            spec.merged(shape).check(login=False)
        except InvalidClusterError as error:
            problems.append((["clusters", name], str(error)))
    return problems


if __name__ == "__main__":
    # Keep output of imports out of the result.
    result, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(cluster_problems(*json.loads(sys.argv[1]))), file=result)
