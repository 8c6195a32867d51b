"""Check cluster, named shapes and engine of an environment where they are installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.engines import DASK, ENGINES
from benchkit.measure.engines.preload import parse_preload
from benchkit.measure.errors import InvalidClusterError


def cluster_problems(
    cluster: Mapping[str, Any],
    clusters: Mapping[str, Mapping[str, Any]],
    engine: str = DASK,
    preload: Sequence[str] = (),
) -> list[tuple[list[str], str]]:
    """Return each problem with its place, such as "cluster", or "clusters" and a name."""
    problems: list[tuple[list[str], str]] = []
    if cluster or clusters:  # the class of the default takes 0.5 s to import
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
    missing = [name for name in ENGINES[engine].packages if not find_spec(name)]
    if missing:
        text = f"engine {engine} needs {', '.join(missing)}, not installed there"
        problems.append((["engine"], f"{text}: add it to the packages of the environment"))
    for index, line in enumerate(preload):
        module = parse_preload(line).module
        # The package only: to find a module inside it would import the package.
        if not find_spec(module.partition(".")[0]):
            problems.append(
                (["preload", str(index)], f"preload {line!r}: {module} is not installed")
            )
    return problems


if __name__ == "__main__":
    # Keep output of imports out of the result.
    result, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(cluster_problems(*json.loads(sys.argv[1]))), file=result)
