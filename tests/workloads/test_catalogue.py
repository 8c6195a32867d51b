"""The metadata of the shipped workloads."""

import fnmatch
import json
import re
import runpy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchkit.measure.discovery import collect
from benchkit.measure.scale import Scale

FOLDER = Path(__file__).parents[2] / "workloads"
FOUND = collect([FOLDER])
WORKLOADS = list(FOUND.workloads.values())
#: One workload for each mechanism of Dask: "the first twelve" in workloads.md.
FIRST_TWELVE = {
    "adaptive.expand_contract_expand",
    "array.basic_sum",
    "array.dot_product",
    "h2o.q5",
    "join.join_big",
    "join.set_index",
    "parquet.write_wide",
    "rechunk.swap_axes_in_memory",
    "sched.task_throughput",
    "spill.spilling",
    "tpch.q03",
    "xarray.anom_mean",
}


def test_collect_imports_every_file():
    assert FOUND.broken == []


def test_originals_name_existing_workloads():
    originals = json.loads((FOLDER / "originals.json").read_text())
    for row in originals:
        assert urlsplit(row["url"]).scheme in ("s3", "gs", "https")
        assert row["size"]
        assert row["about"].endswith(".")
        for pattern in row["workloads"]:
            assert fnmatch.filter(FOUND.workloads, pattern), pattern
    categories = {pattern.partition(".")[0] for row in originals for pattern in row["workloads"]}
    assert categories >= {"tpch", "h2o", "csv", "df", "parquet", "zarr", "geo", "ml"}


@pytest.mark.parametrize("tag", ["first-twelve", "quick"])
def test_profile_selects_one_variant_of_first_twelve(tag):
    chosen = FOUND.select(expression=f"tag:{tag}")

    assert sorted(variant.workload.name for variant in chosen) == sorted(FIRST_TWELVE)


def test_variant_names_are_unique():
    names = [variant.name for variant in FOUND.variants()]

    assert len(set(names)) == len(names)


def test_docstring_has_stress_scale_check_and_duration():
    required = {
        "a first line of one sentence": r"\A[A-Z][^\n]*\.(\n\n|\Z)",
        "what it stresses": r"\bStresses\b|\boverhead\b",
        "how it scales": r"^Scale: .+",
        "what is checked": r"^Check: .+",
        "how long it takes on the local cluster": r"About \d+ s",
    }
    for workload in WORKLOADS:
        for what, pattern in required.items():
            found = re.search(pattern, workload.description, re.MULTILINE)
            assert found, f"{workload.name}: {what} is missing"


def test_workload_has_category_tags_and_check():
    for workload in WORKLOADS:
        assert workload.category == Path(workload.path).stem.partition("_")[0]
        assert workload.tags, workload.name
        assert "check" in workload.steps, workload.name


def test_check_has_wrong_results_in_one_test():
    names = Counter(
        name
        for path in sorted(Path(__file__).parent.glob("test_*.py"))
        if path != Path(__file__)
        for name in runpy.run_path(str(path)).get("WRONG", {})
    )

    assert {workload.name for workload in WORKLOADS} - set(names) == set()
    assert [name for name, count in names.items() if count > 1] == []


def test_source_has_reference_sizes_only():
    size = r"""["'][\d.]+ ?[KMGT]i?B["']"""
    for workload in WORKLOADS:
        code = re.sub(r'"""(.|\n)*?"""', "", workload.source)
        sizes, through_memory_ratio, fixed = (
            len(re.findall(before + size, code))
            for before in ("", r"scale\.chunk\(", '"memory_limit": ')
        )
        assert sizes == through_memory_ratio + fixed, workload.name


@pytest.mark.parametrize(
    ("name", "params"),
    [("sched.task_throughput", {"n": 5000}), ("adaptive.expand_contract_expand", {})],
)
def test_count_is_proportional_to_fraction(name, params):
    count = FOUND.workloads[name].main.__globals__["_count"]
    full = Scale(memory=2**31, threads=2, workers=2)

    assert count(full, **params) == 2 * count(replace(full, fraction=0.5), **params)


def test_facts_have_current_versions():
    versions = {variant.name: variant.workload.version for variant in FOUND.variants()}
    rows = json.loads((FOLDER / "facts.json").read_text(encoding="utf-8"))

    stale = [row["workload"] for row in rows if versions.get(row["workload"]) != row["version"]]

    assert stale == []  # `python benchmarks/catalogue.py facts` drops them
    assert all(row["duration"] > 0 and row["n_runs"] > 0 for row in rows)
