"""Stores and servers that several test files of the dashboard use."""

import shutil

import pytest
from helpers.dashboards import served
from helpers.running_experiment import in_progress

from benchkit.store.store import Store
from validation.history_data import fill


@pytest.fixture(scope="session")
def running_store(tmp_path_factory, a_run):
    """Return a store with a running experiment, which tests only read."""
    return in_progress(Store(tmp_path_factory.mktemp("links") / "store"), a_run)


@pytest.fixture(scope="session")
def running_site(running_store):
    with served(running_store.path) as url:
        yield url


@pytest.fixture
def own_store(tmp_path, a_run):
    """Return a store that a test may change."""
    return in_progress(Store(tmp_path / "store"), a_run)


@pytest.fixture
def own_site(own_store, page):
    with served(own_store.path, page=page) as url:
        yield url


@pytest.fixture(scope="session")
def twelve_nights(tmp_path_factory, a_run):
    """Return the folder of a store of twelve nights, which tests only copy."""
    return fill(tmp_path_factory.mktemp("nightly") / "store", a_run, n_nights=12).path


@pytest.fixture
def nightly_store(tmp_path, twelve_nights, monkeypatch):
    """Return a store of twelve nights that a test may change."""
    store = Store(shutil.copytree(twelve_nights, tmp_path / "store"))
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    return store
