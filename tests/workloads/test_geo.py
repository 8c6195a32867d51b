"""The checks of the archive workloads accept the true result and reject wrong ones."""

import gc
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.wrong_results import FINGERPRINT, TINY, entry, prove, proved_here


def written_with(change):
    """Return a copy of a written store with other values, in the same folder."""

    def spoil(store):
        import xarray as xr

        dataset = change(xr.open_zarr(store, consolidated=False).load())
        for name in dataset.variables:
            dataset[name].encoding.clear()
        other = store.replace("written.zarr", "spoilt.zarr")
        dataset.to_zarr(other, mode="w", consolidated=False)
        return other

    return spoil


def values_with(name, change):
    """Change the values of one variable of a written store."""

    def apply(dataset):
        values = dataset[name].to_numpy().copy()
        return dataset.assign({name: (dataset[name].dims, change(values))})

    return written_with(apply)


def reversed_along(axis):
    return lambda values: np.flip(values, axis)


def one_value(value):
    def change(values):
        values.reshape(-1)[values.size // 2] = value
        return values

    return change


def submitted_with(**changes):
    return lambda result: SimpleNamespace(**{**vars(result), **changes})


CLIMATOLOGY = {
    "a day is off": lambda days: np.asarray(days) * (1 + 1e-6),
    "hours are swapped": lambda days: np.asarray(days)[::-1],
    "days are swapped": lambda days: np.asarray(days)[:, ::-1],
    "the leap day is missing": lambda days: np.asarray(days)[:, :-1],
    "not a number": entry(lambda value: np.nan),
}
WRONG = {
    "geo.atmospheric_circulation": {
        "a product is off": values_with("VT", lambda values: values * (1 + 1e-3)),
        "days are swapped": values_with("UV", reversed_along(0)),
        "two products are swapped": written_with(
            lambda dataset: dataset.assign(UV=dataset["UW"], UW=dataset["UV"])
        ),
        "not a number": values_with("UW", one_value(np.nan)),
    },
    "geo.era5_rechunk": {
        "a moment is not where it was": values_with("sst", reversed_along(0)),
        "places are swapped": values_with("sst", reversed_along(2)),
        "land has a temperature": values_with("sst", np.nan_to_num),
        "a moment is lost": written_with(lambda dataset: dataset.isel(time=slice(1, None))),
    },
    "geo.climatology_highlevel": CLIMATOLOGY,
    "geo.climatology_map_blocks": CLIMATOLOGY,
    "geo.zonal_average": {
        "a county is off": entry(lambda value: value * (1 + 1e-3)),
        "counties are swapped": lambda means: np.asarray(means)[:, ::-1],
        "a moment is lost": lambda means: np.asarray(means)[:-1],
        "not a number": entry(lambda value: np.nan),
    },
    "geo.satellite_filter": {
        "the offset was left in": values_with("humidity", lambda values: values * 0.99),
        "months are swapped": values_with("humidity", reversed_along(0)),
        "a month is lost": written_with(lambda dataset: dataset.isel(month=slice(1, None))),
        "not a number": values_with("humidity", one_value(np.nan)),
    },
    "geo.regrid": FINGERPRINT,
    "geo.cloud_optimize": {
        "a variable is another": values_with("pr", lambda values: values[::-1]),
        "a place is off": values_with("tas", one_value(2.0)),
        "a year is lost": written_with(lambda dataset: dataset.isel(time=slice(365, None))),
        "not a number": values_with("tas", one_value(np.nan)),
    },
    "geo.submission": {
        "a result is not known": submitted_with(keys=["absent"]),
        "another graph was sent": submitted_with(graph=SimpleNamespace(__dask_graph__=dict)),
        "it was known before it was sent": submitted_with(building=1e6),
    },
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG, replace(TINY, fraction=0.1))
    # The next submission counts the tasks that the scheduler knows.
    gc.collect()  # futures in cycles
    end = time.monotonic() + 30
    while client.run_on_scheduler(n_tasks) and time.monotonic() < end:
        time.sleep(0.05)


def n_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)
