"""Measure a variant by its name, in any environment; called by the notebook `measure`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchkit.measure.arguments import check_mapping, check_text, list_of
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.discovery import collect
from benchkit.measure.engines import DASK, ENGINES
from benchkit.measure.engines.preload import import_preload
from benchkit.measure.errors import UsageError, did_you_mean
from benchkit.measure.prometheus import Prometheus
from benchkit.measure.runner import execute
from benchkit.measure.secrets import remember_secrets
from benchkit.measure.suite.collect import is_suite
from benchkit.measure.suite.execute import ArmEnvironment, execute_test
from benchkit.measure.workloads import Variant


def measure(
    workload: str,
    *,
    workloads: Sequence[str | Path] = (),
    folder: str | Path,
    params: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
    clusters: Mapping[str, Mapping[str, Any]] | None = None,
    scale: float = 1.0,
    capture: str = "full",
    deadline_s: float | None = None,
    facts: Mapping[str, Any] | None = None,
    prometheus: str = "",
    engine: str = "",
    preload: Sequence[str] = (),
) -> Path:
    """Measure one variant once and write a recording."""
    check_text(workload, "workload")
    params, clusters = check_mapping(params, "params"), check_mapping(clusters, "clusters")
    facts = check_mapping(facts, "facts")
    if prometheus:
        check_text(prometheus, "prometheus")
    for line in list_of(preload, "preload"):
        import_preload(line)
    remember_secrets(cluster or {}, clusters, params, facts)
    options: dict[str, Any] = {
        "folder": folder,
        "scale": scale,
        "capture": capture,
        "deadline_s": deadline_s,
        "facts": facts,
        "engine": check_text(engine, "engine") if engine else DASK,
        "prometheus": Prometheus.from_environment(prometheus or None),
    }
    if options["engine"] not in ENGINES:
        raise UsageError(f"engine {engine!r}: {did_you_mean(engine, ENGINES, ', '.join(ENGINES))}")
    suites = [place for place in workloads if is_suite(place)]
    if suites and "::" in workload:
        return execute_test(workload, suites, ArmEnvironment(cluster or {}, clusters), **options)
    variant = find_variant(workload, workloads, params)
    return execute(variant, ClusterSpec.from_dict(cluster), shapes=clusters, **options)


def find_variant(
    workload: str, workloads: Sequence[str | Path], params: Mapping[str, Any]
) -> Variant:
    """Load the workloads of folders and return one variant."""
    collection = collect(workloads)
    if params:
        base = workload.partition("[")[0]
        variants = [collection.find(base)[0].workload.bind(**params)]
    else:
        variants = collection.find(workload)
    if len(variants) != 1:
        names = ", ".join(variant.name for variant in variants)
        raise UsageError(f"{workload!r} has {len(variants)} variants: choose one of {names}")
    return variants[0]
