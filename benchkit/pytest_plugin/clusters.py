"""Clusters of the fixtures: that of `--benchkit-environment`, by default a LocalCluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.pytest_plugin.session import SESSION

#: File in the root folder of the tests with options of the named clusters, as in coiled/benchmarks.
OPTIONS_FILE = "cluster_kwargs.yaml"


class ClusterOptions(dict[str, dict[str, Any]]):
    """Options of named clusters; a name that has none gets the default."""

    def __init__(self, options: Mapping[str, dict[str, Any]], default: dict[str, Any]) -> None:
        super().__init__(options)
        self.default = default

    def __missing__(self, name: str) -> dict[str, Any]:
        return dict(self.default)


def session_environment(name: str) -> Any:
    """Return the environment of the tests, which must need no packages of its own.

    In the process of an arm it is the environment that is measured.
    """
    from benchkit.measure.suite.execute import PLUGIN_NAME

    arm = SESSION["config"].pluginmanager.get_plugin(PLUGIN_NAME)
    if arm is not None:
        return arm.environment
    from benchkit.experiment.environment.lookup import as_environment
    from benchkit.measure.errors import UsageError

    environment = as_environment(name)
    if environment.needs_building:
        raise UsageError(
            f"environment {name!r} has packages, and pytest runs in the present ones: "
            "run pytest in that environment, or omit its packages"
        )
    return environment


def cluster_options(environment: Any, root: Path) -> ClusterOptions:
    """Return the options of the clusters that tests name.

    On Coiled they are those of ``cluster_kwargs.yaml``, its section ``default`` included; elsewhere
    only the number of workers is known: that of the environment, for the cluster of that name where
    its ``clusters`` have one.
    """
    from dask.config import merge

    spec = ClusterSpec.from_dict(environment.cluster)
    if spec.class_name.startswith("coiled."):
        path = root / OPTIONS_FILE
        options = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
        default = {**options.pop("default", {}), **spec.kwargs}
        return ClusterOptions({k: merge(default, v) for k, v in options.items()}, default)
    named = {
        name: {"n_workers": int(spec.merged(options).kwargs.get("n_workers") or 1)}
        for name, options in environment.clusters.items()
    }
    return ClusterOptions(named, {"n_workers": int(spec.kwargs.get("n_workers") or 1)})


@contextmanager
def open_session_cluster(environment: Any, **options: Any) -> Iterator[Any]:
    """Open the cluster of an environment."""
    import dask

    from benchkit.measure.cluster.reuse import reused_cluster
    from benchkit.measure.cluster.running import open_cluster
    from benchkit.measure.suite.execute import ArmEnvironment

    is_arm = isinstance(environment, ArmEnvironment)
    spec = ClusterSpec.from_dict(environment.cluster)
    if spec.class_name.startswith("coiled."):
        spec = replace(spec, kwargs={**options, **spec.kwargs})
    elif "n_workers" in options:
        spec = spec.merged({"n_workers": options["n_workers"]})
    variables = dask.config.collect_env(options.get("environ") or {})
    config = dask.config.merge(dask.config.config, environment.dask, variables)
    opened = reused_cluster(spec) if is_arm else open_cluster(spec)
    with dask.config.set(config), opened as running:
        if not is_arm:
            running.client.close()  # else the default client of tests that have none
        yield spec.scheduler_address() if running.cluster is None else running.cluster


@contextmanager
def open_engine(environment: Any, client: Any, item: Any) -> Iterator[Any]:
    """Open the client of a test in the engine of the environment; skip a test that it cannot run.

    The client of Dask stays open.
    """
    from benchkit.measure.cluster.running import RunningCluster
    from benchkit.measure.engines import engine_named
    from benchkit.measure.source import source_of

    engine = engine_named(environment.engine)
    if not engine.has_client:
        pytest.skip(f"engine {engine.name} has no client, which a fixture of the test returns")
    source = source_of(item.function)
    if reason := engine.source_refusal(source, ("client", "small_client"), "test"):
        pytest.skip(reason)
    with engine.open(RunningCluster(client, client.cluster, {})) as own:
        yield own
