"""Simulate one run in the environment under test: ``python -m benchkit.simulation.entrypoint``.

Reads a request from a JSON file and writes a recording. A graph that cannot be simulated gives a
recording with the outcome `skipped`.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask

from benchkit._compat.distributed_internals import UnsupportedRelease
from benchkit.measure.errors import error_summary
from benchkit.simulation.cluster import VirtualCluster
from benchkit.simulation.graph import UnsupportedGraph, VirtualGraph
from benchkit.simulation.model import ClusterShape, Model
from benchkit.simulation.recording import open_recording, write_results


def simulate_request(request: Mapping[str, Any]) -> Path:
    """Simulate a run."""
    content, facts = dict(request["graph"]), dict(request["facts"])
    shape, model = ClusterShape(**request["shape"]), Model.from_dict(request["model"])
    writer = open_recording(Path(request["folder"]), request["id"], facts)
    try:
        if "workload" in content:
            from benchkit.simulation.workload_graph import workload_graph

            graph = workload_graph(shape=shape, **content)
        else:
            graph = VirtualGraph.from_dict(content)
        with dask.config.set(request.get("config", {})):
            cluster = VirtualCluster(graph, shape, model, draw=request["draw"])
            cluster.run()
    except (UnsupportedGraph, UnsupportedRelease) as error:
        writer.tail(outcome="skipped", error=str(error), phase="prepare")
    except Exception as error:
        trace = traceback.format_exc()
        writer.tail(outcome="failed", error=error_summary(error), traceback=trace, phase="workload")
    else:
        write_results(writer, cluster)
    return writer.path


def main() -> None:
    """Read the request that the first argument names."""
    logging.disable(logging.WARNING)
    simulate_request(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
