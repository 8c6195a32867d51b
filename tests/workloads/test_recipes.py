import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from click.testing import CliRunner
from pyarrow import parquet

from benchkit.cli.data import data
from benchkit.experiment.environment.process_variables import measured_folder
from benchkit.measure.data.dataset import dataset
from benchkit.measure.data.recipe import _RECIPES, find_recipe, recipe, shipped_recipes
from benchkit.measure.discovery import collect
from benchkit.measure.errors import DatasetError, MissingPackage

OWN_RECIPE = """
from benchkit.measure import recipe

@recipe("own", version=1, sizes={"ci": {"count": 5}})
def own(folder, *, count=3):
    return {"rows": {"own": count}}
"""
OWN_WORKLOAD = """
import _recipes.own
from benchkit.measure import dataset, workload

@workload
def total(prepared):
    "Do nothing. Check: none."

@total.prepare
def _():
    return dataset("own").label
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHKIT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def schema_of(made, table):
    return parquet.read_schema(made.files(table)[0])


def test_shipped_recipes_have_four_sizes():
    find_recipe("tpch")  # declares the shipped recipes
    shipped = set(map(str, shipped_recipes()))
    every = [each for each in _RECIPES.values() if inspect.getfile(each.function) in shipped]
    assert len(every) >= 16
    for each in every:
        assert list(each.sizes) == ["tiny", "ci", "laptop", "cluster"]
        for size in each.sizes:
            assert each.bind(size) == {**each.bind(), **each.sizes[size]}


def test_recipe_of_user_replaces_shipped_recipe(monkeypatch):
    monkeypatch.setattr("benchkit.measure.data.recipe._RECIPES", {})

    @recipe("h2o", version=7)
    def own(folder, *, rows=1):
        return {"rows": {"h2o": rows}}

    assert find_recipe("tpch").version == 1  # declares all shipped recipes
    assert find_recipe("h2o") is own


def test_recipes_folder_next_to_workloads_declares_datasets(tmp_path, monkeypatch):
    monkeypatch.setattr("benchkit.measure.data.recipe._RECIPES", {})
    (tmp_path / "workloads" / "_recipes").mkdir(parents=True)
    (tmp_path / "workloads" / "_recipes" / "__init__.py").write_text("")
    (tmp_path / "workloads" / "_recipes" / "own.py").write_text(OWN_RECIPE)
    (tmp_path / "workloads" / "x.py").write_text(OWN_WORKLOAD)

    collection = collect(tmp_path / "workloads")

    assert collection.broken == []
    assert collection.workloads["x.total"].call("prepare") == "own(count=3)"
    assert "_recipes" not in sys.modules
    made = CliRunner().invoke(data, ["make", "own", "--workloads", str(tmp_path / "workloads")])
    assert made.output.startswith("own(count=5)  ")


def test_measured_copy_contains_shipped_recipes(folder):
    script = "from benchkit.measure import dataset; print(dataset('h2o', size='tiny').path)"
    variables = {**os.environ, "PYTHONPATH": str(measured_folder())}

    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, cwd=folder.parent, capture_output=True,
        text=True, check=True,
    )  # fmt: skip

    assert dataset("h2o", size="tiny").path == Path(done.stdout.strip())


def test_tpch_has_rows_of_specification():
    made = dataset("tpch", size="tiny")

    assert made.manifest["rows"] == {
        "customer": 1500,
        "lineitem": 60175,
        "nation": 25,
        "orders": 15000,
        "part": 2000,
        "partsupp": 8000,
        "region": 5,
        "supplier": 100,
    }
    assert len(made.files("lineitem")) == 2
    read = sum(parquet.read_metadata(path).num_rows for path in made.files("lineitem"))
    assert read == 60175
    assert made.manifest["generators"]["tpchgen-cli"][0].isdigit()


def test_tpch_types_are_supported_by_all_readers():
    made = dataset("tpch", size="tiny")

    kinds = {
        kind for table in made.manifest["tables"] for kind in map(str, schema_of(made, table).types)
    }

    assert kinds == {"int32", "int64", "double", "string", "timestamp[ms]"}
    assert schema_of(made, "lineitem").field("l_discount").type == pa.float64()
    assert schema_of(made, "lineitem").field("l_shipdate").type == pa.timestamp("ms")


def test_h2o_has_published_columns_and_ranges():
    made = dataset("h2o", size="tiny", rows=20_001)
    frame = pd.concat([pd.read_parquet(path) for path in made.files("h2o")])

    assert len(frame) == 20_001
    assert list(frame) == ["id1", "id2", "id3", "id4", "id5", "id6", "v1", "v2", "v3"]
    assert set(frame.id1) == {f"id{i:03d}" for i in range(1, 21)}
    assert frame.id3.str.fullmatch(r"id\d{10}").all()
    for column, top in {"id4": 20, "id5": 20, "id6": 1000, "v1": 5, "v2": 15}.items():
        assert (frame[column].min(), frame[column].max()) == (1, top)
    assert frame.v3.between(0, 100).all()
    assert frame.v3.round(6).equals(frame.v3)
    assert not frame.isna().any(axis=None)
    assert not frame.id6.is_monotonic_increasing


def test_h2o_is_deterministic(tmp_path):
    first = [pd.read_parquet(path) for path in dataset("h2o", size="tiny").files("h2o")]
    shutil.rmtree(dataset("h2o", size="tiny").path)
    second = [pd.read_parquet(path) for path in dataset("h2o", size="tiny").files("h2o")]

    for a, b in zip(first, second, strict=True):
        pd.testing.assert_frame_equal(a, b)
    assert not first[0].head(100).equals(first[1].head(100))


def test_wide_has_25_columns_of_each_kind_and_time_index():
    made = dataset("wide", size="tiny")
    frames = [pd.read_parquet(path) for path in made.files("wide")]

    assert [len(frame) for frame in frames] == [500, 500]
    kinds = frames[0].dtypes.astype(str).str.replace(r"^(object|string)$", "str", regex=True)
    assert kinds.value_counts().to_dict() == {"str": 25, "float64": 25, "int64": 25, "category": 25}
    steps = pd.concat(frames).index.to_series().diff().dropna()
    assert (steps == pd.Timedelta("10ms")).all()


def test_recipe_names_missing_program_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MissingPackage, match=r"^recipe tpch needs tpchgen-cli, not installed here"):
        dataset("tpch", size="tiny")


def test_recipe_names_missing_package_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(MissingPackage, match=r"^recipe h2o needs pyarrow, not installed here"):
        dataset("h2o", size="tiny")


def test_recipe_quotes_error_of_failing_program(folder):
    with pytest.raises(DatasetError, match="tpchgen-cli failed with code"):
        dataset("tpch", sf=-1.0)

    assert [path.name for path in folder.iterdir() if path.name.startswith("tpch")] == []


def test_rideshare_has_zones_and_files_of_different_lengths():
    made = dataset("rideshare", rows=20_000, files=10)
    lengths = [parquet.read_metadata(path).num_rows for path in made.files("trips")]
    trips = pd.concat(map(pd.read_parquet, made.files("trips")))
    zones = pd.read_parquet(made.files("zones")[0])

    assert sum(lengths) == made.manifest["rows"]["trips"] == pytest.approx(20_000, abs=10)
    assert max(lengths) > 4 * min(lengths)
    assert trips["on_scene"].isna().mean() == pytest.approx(0.1, abs=0.02)
    assert set(trips["airport_fee"]) == {"None", "0.0", "2.5"}
    assert set(trips["PULocationID"]) | set(trips["DOLocationID"]) <= set(zones["zone"])
    assert (len(zones), zones["borough"].nunique(), zones["group"].nunique()) == (263, 7, 4)


def test_gdelt_files_begin_with_valid_line():
    made = dataset("gdelt", files=40, rows_per_file=50)

    lines = [open(path).read().splitlines() for path in made.files("events")]
    assert {line[0].count("\t") for line in lines} == {57}
    assert any(line.count("\t") == 59 for each in lines for line in each)


def test_nex_nc_manifest_contains_values_and_sums():
    made = dataset("nex_nc", size="tiny")

    for name in ("tas", "pr"):
        known, files = made.manifest["known"][name], made.files(name)
        with xr.open_mfdataset(files, engine="h5netcdf") as opened:
            values = opened[name].load()
        assert values.shape == (730, 4, 8)
        assert [float(values[tuple(place)]) for place in known["points"]] == known["values"]
        np.testing.assert_allclose(values.sum(("lat", "lon"), dtype=float), known["sums"])
