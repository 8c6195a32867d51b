"""Declarations of workloads."""

import sys
from types import ModuleType

import pytest

from benchkit.measure.errors import InvalidWorkloadError
from benchkit.measure.workloads import RESERVED_NAMES, workload
from benchkit.store.schema import GROUPS


def test_step_with_unknown_argument_is_rejected():
    message = r"unknown argument 'chunk'.*did you mean 'chunks'"
    with pytest.raises(InvalidWorkloadError, match=message):

        @workload(category="array", variants={"chunks": [1]})
        def total(client, *, chunk):
            return chunk


def test_metric_named_as_group_is_rejected():
    assert set(GROUPS) == RESERVED_NAMES
    with pytest.raises(InvalidWorkloadError, match="tasks is a group of every run file"):
        workload(metrics={"tasks": "1"})(lambda client: None)


@pytest.mark.parametrize("about", [("1/s", "up"), ("1/s",) * 3, (), 5])
def test_metric_with_wrong_direction_is_rejected_when_it_is_declared(about):
    with pytest.raises(InvalidWorkloadError, match=r'rows_per_s=.*give a unit, or \("1/s", "more"'):
        workload(metrics={"rows_per_s": about})(lambda client: None)


def test_missing_packages_accepts_module_without_spec(monkeypatch):
    # As optuna_integration: after the first run its workloads were skipped.
    monkeypatch.setitem(sys.modules, "lazy_package", ModuleType("lazy_package"))

    def total(client):
        """Count."""
        return 3

    needy = workload(total, category="array", requires=["lazy_package", "no_such_package"])
    (variant,) = needy.variants()
    assert variant.missing_packages() == ["no_such_package"]
