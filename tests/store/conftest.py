from collections.abc import Callable
from pathlib import Path

import pytest
import xarray as xr

from benchkit.store.store import Store
from validation.synthetic_runs import make_run as _make_run


@pytest.fixture
def make_run() -> Callable[..., xr.DataTree]:
    """Make a small run that follows the schema; see `synthetic_runs.make_run`."""
    return _make_run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with the marker `store_kinds` once for each kind of store in it."""
    kinds = metafunc.definition.get_closest_marker("store_kinds")
    if kinds is not None and "store" in metafunc.fixturenames:
        s3 = {"real_bucket": [pytest.mark.s3]}
        params = [pytest.param(kind, marks=s3.get(kind, ())) for kind in kinds.args]
        metafunc.parametrize("store", params, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an empty store in a folder, or as the marker `store_kinds` says."""
    kind = getattr(request, "param", "folder")
    return Store(tmp_path / "store" if kind == "folder" else request.getfixturevalue(kind))


@pytest.fixture
def filled(store: Store) -> Store:
    """Return a store of six runs without groups: two environments, tags, one failed run."""
    for index in range(6):
        store.add(
            _make_run(
                ("array.basic_sum[chunks=thin]", "array.basic_sum[chunks=square]", "frame.join")[
                    index % 3
                ],
                groups=False,
                environment="main" if index < 3 else "dev-2026.9",
                tags={"variant": "AB"[index % 2], "n": index},
                started=f"2026-08-0{index + 1}T02:00:00.000000+00:00",
                outcome="failed" if index == 5 else "ok",
                error="ValueError: no" if index == 5 else None,
                duration=None if index == 5 else 10.0 + index,
            )
        )
    return store
