from __future__ import annotations

import pytest

from benchkit.errors import UsageError
from benchkit.store.index.arrow import records_to_table
from benchkit.store.index.names import check_names


def test_check_names_suggests_nearest_name():
    table = records_to_table(
        [{"id": "a", "tags": '{"variant": "A", "slow": true}', "params": '{"n": 1}'}, {"id": "b"}]
    )
    fields = ["environment", "workload"]

    check_names(table, {"environment": "a", "variant": "A", "slow": "true"}, fields)
    with pytest.raises(UsageError, match=r"'environmant' is not a field.*mean 'environment'"):
        check_names(table, {"environmant": "a"}, fields)
    with pytest.raises(UsageError, match="did you mean 'variant'"):
        check_names(table, {"varianx": "A"}, fields)


def test_check_names_accepts_any_name_in_empty_store():
    assert check_names(records_to_table([]), {"variant": "A"}, ["environment"]) is None
