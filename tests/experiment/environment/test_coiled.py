"""Import of the A/B environments of coiled/benchmarks."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchkit.cli.main import benchkit as main
from benchkit.errors import InvalidEnvironmentError, UsageError
from benchkit.experiment.environment.coiled import (
    ab_command,
    import_reference,
    translate_conda_spec,
)
from benchkit.experiment.environment.lookup import find_environment


@pytest.fixture
def reference(tmp_path):
    folder = tmp_path / "AB_environments"
    folder.mkdir()
    files = {
        "AB_one.conda.yaml": "channels: [conda-forge, nogil]\ndependencies:\n"
        "  - python =3.11\n  - pip\n  - numpy ==1.26.2\n  - dask ==2024.2.1\n"
        "  - distributed ==2024.2.1\n  - msgpack-python =1.0\n  - openssl >1.1.0g\n"
        "  - pip:\n    - git+https://github.com/dask/dask@0a0065d2c2749516ee64ef290286fb253910d27b\n"
        "    - -r ../ci/more.in\n    - -r nowhere.txt\n",
        "AB_one.dask.yaml": "distributed:\n  scheduler:\n    worker-saturation: 1.2\n",
        "AB_one.cluster.yaml": "default:\n  package_sync: true\n  spot_policy: on-demand\n"
        "small_cluster:\n  n_workers: 12\nspill_cluster:\n  n_workers: 5\n  worker_disk_size: 64\n",
        "AB_two.dask.yaml": "# nothing\n",
        "AB_old.conda.yaml": "dependencies: [python =3.9, dask-core ==2023.4.1]\n",
        "AB_odd.cond.yaml": "",
        "README.md": "",
        "../cluster_kwargs.yaml": "default:\n  wait_for_workers: true\nsmall_cluster:\n"
        "  n_workers: 10\n  worker_vm_types: [m6i.large]\n",
        "../ci/more.in": "# more\ngilknocker==0.4.1  # the GIL\n",
    }
    (tmp_path / "ci").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_import_merges_files_of_one_name(reference, tmp_path):
    target = tmp_path / "environments"

    import_reference(reference, target)
    environment = find_environment("one", [target], check=False)

    assert environment.python == "3.11"
    assert environment.packages == (
        "numpy==1.26.2",
        "git+https://github.com/dask/dask@0a0065d2c2749516ee64ef290286fb253910d27b",
        "distributed==2024.2.1",
        "msgpack==1.0.*",
        "gilknocker==0.4.1",
    )
    assert environment.dask == {"distributed": {"scheduler": {"worker-saturation": 1.2}}}
    # Sections of the folder override those of cluster_kwargs.yaml, as in coiled/benchmarks.
    assert environment.cluster == {
        "class": "coiled.Cluster",
        "wait_for_workers": True,
        "spot_policy": "on-demand",
        "n_workers": 12,
        "worker_vm_types": ["m6i.large"],
    }
    assert environment.clusters == {"spill": {"n_workers": 5, "worker_disk_size": 64}}


def test_import_warns_about_entries_without_equivalent(reference, tmp_path):
    imported = {e.name: e for e in import_reference(reference, tmp_path / "environments")}
    warnings = "\n".join(warning for entry in imported.values() for warning in entry.warnings)

    assert set(imported) == {"one", "two", "old"}
    for word in ("openssl", "'nogil'", "package_sync", "nowhere.txt", "AB_odd.cond.yaml"):
        assert word in warnings
    assert "python 3.9: benchkit measures on 3.10 and newer" in warnings
    assert find_environment("old", [tmp_path / "environments"], check=False).python is None


def test_import_overwrites_no_file(reference, tmp_path):
    target = tmp_path / "environments"
    target.mkdir()
    (target / "two.yaml").write_text("description: mine\n")

    with pytest.raises(UsageError, match=r"two.yaml: already exists"):
        import_reference(reference, target)

    assert [path.name for path in target.iterdir()] == ["two.yaml"]
    assert (target / "two.yaml").read_text() == "description: mine\n"


def test_import_reports_line_of_invalid_yaml(reference, tmp_path):
    (reference / "AB_two.dask.yaml").write_text("a: 1\nb: {\n")

    with pytest.raises(InvalidEnvironmentError, match=r"AB_two.dask.yaml:3: not YAML"):
        import_reference(reference, tmp_path / "environments")
    assert not (tmp_path / "environments").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("AB_one.cluster.yaml", "n_workers: 4\n",
         "n_workers: must be a section with options, as in default: {n_workers: ...}"),
        ("../cluster_kwargs.yaml", "default: [1]\n",
         "default: must be a section with options, as in default: {default: ...}"),
        ("AB_one.conda.yaml", "channels: conda-forge\n", "channels: must be a list"),
        ("AB_one.conda.yaml", "dependencies: dask\n", "dependencies: must be a list"),
        ("AB_one.conda.yaml", "dependencies: [{pip: dask}]\n", "pip: must be a list"),
    ],
)  # fmt: skip
def test_import_names_entry_of_wrong_shape(reference, tmp_path, name, text, message):
    (reference / name).write_text(text)
    path = tmp_path / "cluster_kwargs.yaml" if ".." in name else reference / name

    with pytest.raises(InvalidEnvironmentError) as caught:
        import_reference(reference, tmp_path / "environments")

    assert str(caught.value) == f"{path}: {message}"
    assert not (tmp_path / "environments").exists()


def test_import_rejects_folder_without_files(tmp_path):
    with pytest.raises(UsageError, match="no files AB_"):
        import_reference(tmp_path, tmp_path / "environments")


@pytest.mark.parametrize(
    ("spec", "requirement"),
    [
        ("numpy", "numpy"),
        ("numpy ==1.26.2", "numpy==1.26.2"),
        ("numpy=1.26", "numpy==1.26.*"),
        ("numpy =1.26.*", "numpy==1.26.*"),
        ("numpy 1.26.*", "numpy==1.26.*"),
        ("numpy=1.26=py311_0", "numpy==1.26"),
        ("pandas >=2, <3", "pandas>=2,<3"),
        ("conda-forge::dask-core ==2024.3.1", "dask==2024.3.1"),
        ("dask ==2024.2.1", "dask[array,dataframe,diagnostics]==2024.2.1"),
        ("pip", ""),
        ("python-duckdb ==1.1.3", "duckdb==1.1.3"),
        ("pytables >=3.9", "tables>=3.9"),
        ("opencv", "opencv-python"),
        ("librosa", "librosa"),
        ("numpy 1.7|1.8", ""),
    ],
)
def test_translate_conda_spec_versions(spec, requirement):
    assert translate_conda_spec(spec).requirement == requirement


def test_translate_conda_spec_reasons():
    assert "build 'py311_0'" in translate_conda_spec("numpy=1.26=py311_0").reason
    assert "cannot express version" in translate_conda_spec("numpy 1.7|1.8").reason
    assert translate_conda_spec("pip").reason == ""


def test_import_leaves_out_settings_that_dask_does_not_read(reference, tmp_path):
    (reference / "AB_two.dask.yaml").write_text("dask: {dataframe: {query-planning: true}}\n")

    imported = {e.name: e for e in import_reference(reference, tmp_path / "environments")}

    assert imported["two"].content["dask"] == {}
    assert (
        "'dask' is left out: Dask reads no setting below this name" in imported["two"].warnings[-1]
    )


@pytest.mark.parametrize(
    "name",
    [
        *("hdf5", "libnetcdf", "zlib", "esmf", "mpich", "libgcc-ng", "_libgcc_mutex"),
        *("ld_impl_linux-64", "gcc_linux-64", "xorg-libxau", "aws-c-s3", "python_abi"),
    ],
)
def test_translate_conda_spec_omits_libraries(name):
    translated = translate_conda_spec(f"{name}=1.2=h0_3")

    assert translated.requirement == ""
    assert translated.reason == "not a Python package: pip cannot install it"


CONFIG = """repeat: 5
test_null_hypothesis: false
targets: [tests/benchmarks/test_array.py]
markers:
h2o_datasets: [5 GB (parquet+pyarrow)]
max_parallel: {ci_jobs: 5}
"""


def test_import_proposes_command_and_names_what_it_ignores(reference, tmp_path):
    (reference / "config.yaml").write_text(CONFIG)
    target = tmp_path / "environments"

    done = CliRunner().invoke(
        main, ["env", "import", str(reference), "--environments", str(target)]
    )

    assert done.exit_code == 0, done.output
    assert f"compare them: benchkit ab old one two --environments {target}" in done.stderr
    assert "-k profile:quick -n 5 --no-null\n" in done.stderr
    ignored = [line for line in done.stderr.splitlines() if "config.yaml: " in line]
    names = [line.split("config.yaml: ")[1].partition(":")[0] for line in ignored]
    assert names == ["targets", "h2o_datasets", "max_parallel"]


def test_proposed_command_measures_baseline_first_and_omits_defaults(reference):
    (reference / "config.yaml").write_text("repeat: 0\ntest_null_hypothesis: true\n")

    command = ab_command(reference, ["a", "baseline", "b"], Path("envs"))

    assert command == "benchkit ab baseline a b --environments envs -k profile:quick"


def test_import_with_broken_config_writes_nothing(reference, tmp_path):
    (reference / "config.yaml").write_text("repeat: {\n")

    with pytest.raises(InvalidEnvironmentError, match=r"config.yaml:2: not YAML"):
        import_reference(reference, tmp_path / "environments")
    assert not (tmp_path / "environments").exists()
