"""Find and merge environment files; errors name file and line."""

import sys

import pytest

from benchkit.errors import InvalidEnvironmentError
from benchkit.experiment.environment.lookup import find_environment
from benchkit.experiment.paths import shipped


@pytest.fixture
def load(tmp_path):
    """Return a function that writes environment files and loads the first."""

    def load(text, name="main", **others):
        for other, content in {name: text, **others}.items():
            (tmp_path / f"{other}.yaml").write_text(content)
        return find_environment(name, [tmp_path])

    return load


def error_of(load, text, **others):
    with pytest.raises(InvalidEnvironmentError) as caught:
        load(text, **others)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message
    return message.partition("main.yaml")[2] or message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("description: x\npackges: [dask]\n", ":2: unknown key 'packges': did you mean 'packages'"),
        ("engine: frosky\n", ":1: engine 'frosky' does not exist: did you mean 'frisky'?"),
        ("preload: numpy\n", ":1: preload is 'numpy': should be a list of modules"),
        ("preload:\n- numpy\n- a b\n", ":3: preload 'a b': should be MODULE, MODULE:FUNCTION or"),
        ("preload: [no_such.module]\n", ":1: preload 'no_such.module': no_such.module is not"),
        ("cluster: {class: frisky.LocalCluster}\n", ":1: cluster class 'frisky.LocalCluster' is"),
        ("engine: 3\n", ":1: engine is 3: should be text"),
        ("description: [a]\n", ":1: description is ['a']: should be text"),
        ("dask: yes\n", ":1: dask is True: should be"),
        ("cluster: 4\n", ":1: cluster is 4: should be"),
        ("- dask\n", ":1: must contain `key: value` lines"),
        ("dask: {a: 1\n", ":2: not YAML"),
        ("description: a\n\ndescription: b\n", ":3: 'description' again, after line 1"),
        ("packages: []\n", ":1: packages should be a list of pip requirement lines"),
        ("packages:\n- dask\n- numpy=1\n", ":3: 'numpy=1' is not a pip requirement line"),
        ("packages:\n- dask\n- ./nowhere\n", ":3: './nowhere': no such folder or file"),
        ("packages:\n- 3\n", ":2: 3 is not a pip requirement line"),
        ("packages: [--index-url=https://me:secret@x/]\n", "UV_INDEX_URL"),
        ("python: three\npackages: [dask]\n", ":1: python 'three': should be a version"),
        ("python: 3.9\npackages: [dask]\n", ":1: python 3.9: benchkit measures on 3.10 and newer"),
        ('python: "3.11"\n', ":1: python without packages"),
        ("conda: no.yml\n", ":1: conda: no file no.yml"),
        ("variables: {A: [1]}\n", ":1: variable A should be text"),
        ("variables:\n  A: 1\n  B-C: 1\n", ":3: variable 'B-C'"),
        ("variables: {DASK_X: 1}\n", ":1: variable DASK_X: put Dask's settings below `dask:`"),
        ("extends: mainn\n", ":1: extends 'mainn': no file of that name"),
        ("extends: main\n", ":1: extends itself"),
        ("clusters: {spill: 3}\n", ":1: clusters.spill is 3"),
        ("clusters:\n  spill:\n    class: x.Y\n", ":3: clusters.spill: class belongs to `cluster`"),
        ("cluster:\n  n_workers: 1\n  n_threads: 2\n", ":3: dask.distributed.LocalCluster has no"),
        ("cluster: {memory_limit: lots}\n", ":1: memory_limit"),
        (
            "cluster:\n  n_workers: 1\n  scheduler_file: s.json\n",
            ":3: dask.distributed.LocalCluster has no option 'scheduler_file': a running scheduler "
            "is given by `address`, which takes the scheduler file, too",
        ),
        ("cluster: {\nnthreads: 2}\n", ":2: dask.distributed.LocalCluster has no option 'nthre"),
        ("cluster:\n  n_workers: 0\n", ":2: n_workers is 0: must be a whole number, 1 or more"),
        ("cluster: {processes: false, env: {A: b}}\n", "has no option 'env'"),
        ("cluster:\n  address: none.json\n", ":2: address 'none.json': scheduler file: No such"),
        ("cluster:\n\n  class: dask.distributed.LocalClster\n", ":3: cluster class"),
        ("clusters:\n  a: {n_workers: 1}\n  b: {n_wokers: 1}\n", "did you mean 'n_workers'"),
    ],
)
def test_find_environment_reports_line_of_mistake(load, text, message):
    assert message in error_of(load, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "dask:\n  distributed:\n    scheduler:\n      work-stealng: false\n",
            ":4: distributed VERSION has no setting 'distributed.scheduler.work-stealng': "
            "did you mean 'distributed.scheduler.work-stealing'?",
        ),
        (
            "dask:\n  distributed: {work-stealing: false}\n",
            "did you mean 'distributed.scheduler.work-stealing'?",
        ),
        ("dask: {distribute: {}}\n", "has no setting 'distribute': did you mean 'distributed'?"),
        ("dask: {distributed.scheduler.work-stealing: 0}\n", "should be nested: distributed: {"),
        ("dask: {unknown: {a: 1}}\n", "has no setting 'unknown'"),
        (
            "dask:\n  dask: {dataframe: {convert-string: false}}\n",
            ":2: dask VERSION has no setting 'dask': "
            "write 'dataframe.convert-string' directly below `dask:`",
        ),
        (
            "dask:\n  array:\n    chunk-sise: 1\n",
            ":3: dask VERSION has no setting 'array.chunk-sise': did you mean 'array.chunk-size'?",
        ),
        ("dask: {pandas: {mode: {copy_on_write: true}}}\n", "has no setting 'pandas'"),
        ("dask: {json: {a: 1}}\n", "has no setting 'json'"),
        ("dask: {numpy: 1}\n", "has no setting 'numpy'"),
        ("dask: {acmee: {x: 1}}\n", "declared by benchkit: {other-settings: [acmee]}"),
        ("dask: {benchkit: {other-settings: [acme]}, acmee: 1}\n", "has no setting 'acmee'"),
        ("dask: {benchkit: {other-settings: 3}, acme: 1}\n", ":1: other-settings must be a list"),
    ],
)
def test_find_environment_rejects_unknown_dask_setting(load, text, message):
    import dask
    import distributed

    package = dask if "dask VERSION" in message else distributed
    assert message.replace("VERSION", package.__version__) in error_of(load, text)


def test_find_environment_accepts_open_settings(load):
    environment = load(
        "dask:\n"
        "  distributed:\n"
        "    worker: {resources: {GPU: 2}}\n"
        "    nanny: {pre-spawn-environ: {OMP_NUM_THREADS: 4, MY_OWN: x}}\n"
        "    scheduler: {work_stealing: false, default-task-durations: {mine: 1s}}\n"
        "  coiled: {anything: 1}\n"
        "  logging: {distributed.nanny: debug}\n"
        "  benchkit: {other-settings: [acme]}\n"
        "  acme: {x: {y: 1}}\n"
    )

    assert environment.dask["distributed"]["worker"]["resources"] == {"GPU": 2}


def test_find_environment_accepts_benchkit_settings(load):
    assert load("dask: {benchkit: {worker-price: 0.1}}\n").dask == {
        "benchkit": {"worker-price": 0.1}
    }


def test_find_environment_merges_extended_files(load):
    environment = load(
        "extends: middle\ndask: {distributed: {scheduler: {work_stealing: true}}}\n"
        "cluster: {n_workers: 4}\n",
        middle="extends: base\nvariables: {A: '1', B: 2e3}\n",
        base="description: the base\nvariables: {A: '0'}\n"
        "dask: {distributed: {scheduler: {work-stealing: false, worker-ttl: null}}}\n"
        "cluster: {n_workers: 2, threads_per_worker: 1}\n",
    )

    assert environment.description == "the base"
    assert environment.variables == {"A": "1", "B": "2e3"}
    # Dask accepts both spellings; with both in one file the result would be random.
    assert environment.dask == {
        "distributed": {"scheduler": {"work-stealing": True, "worker-ttl": None}}
    }
    assert environment.cluster == {"n_workers": 4, "threads_per_worker": 1}


def test_other_cluster_class_inherits_no_options(load):
    environment = load(
        "extends: base\ncluster: {class: dask.distributed.SSHCluster, hosts: [a, b]}\n",
        base="cluster: {n_workers: 2}\nclusters: {spill: {memory_limit: 1 GiB}}\n",
    )

    assert environment.cluster == {"class": "dask.distributed.SSHCluster", "hosts": ["a", "b"]}
    assert environment.clusters == {}


def test_empty_key_removes_value_of_base(load):
    environment = load("extends: base\npackages:\n", base="packages: [dask==2026.7.0]\n")

    assert environment.packages is None


def test_find_environment_reports_circular_extends(load):
    message = error_of(load, "extends: a\n", a="extends: b\n", b="extends: main\n")

    assert "circular extends: main -> a -> b -> main" in message


def test_find_environment_reports_line_in_base(load):
    message = error_of(load, "extends: base\n", base="\ncluster: {n_wokers: 1}\n")

    assert "base.yaml:2: " in message


def test_local_source_is_relative_to_its_file(tmp_path):
    source = tmp_path / "bases" / "mine"
    source.mkdir(parents=True)
    (source / "pyproject.toml").write_text('[project]\nname = "Mine_Own"\nversion = "1"\n')
    (tmp_path / "bases" / "base.yaml").write_text("packages: [-e ./mine]\n")
    (tmp_path / "main.yaml").write_text("extends: base\n")

    environment = find_environment("main", [tmp_path, tmp_path / "bases"])
    (requirement,) = environment.requirements()

    assert (requirement.kind, requirement.name) == ("path", "mine-own")
    assert requirement.text == f"-e {source}"


def test_environment_to_dict_has_no_secrets(load):
    environment = load(
        "packages: ['git+https://me:hunter2@example.org/x']\n"
        "variables: {AWS_SECRET_ACCESS_KEY: hunter2, A: b}\n"
        "dask: {coiled: {token: hunter2}}\n"
        "cluster: {class: some.Cluster, environ: {API_TOKEN: hunter2}}\n"
    )

    assert "hunter2" not in str(environment.to_dict())
    assert environment.to_dict()["variables"]["A"] == "b"


def test_shipped_environments_are_valid():
    names = {path.stem for path in shipped("environments").glob("*.yaml")}
    for name in names - {"coiled-small"}:
        assert find_environment(name, [shipped("environments")]).description

    assert {"baseline", "no-stealing", "previous-release", "release-2023.4.1"} < names
    assert {"malloc-trim", "wide-workers", "narrow-workers", "coiled-small"} < names


def test_find_environment_without_coiled_names_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "coiled", None)

    with pytest.raises(InvalidEnvironmentError, match=r"coiled-small.yaml:4: .*benchkit\[coiled\]"):
        find_environment("coiled-small", [shipped("environments")])
