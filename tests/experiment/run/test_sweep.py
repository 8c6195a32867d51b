import pytest

from benchkit.errors import UsageError
from benchkit.experiment.environment import builds
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.run.api import Selection, plan_experiment
from benchkit.experiment.run.sweep import expand, parse_sweeps


def test_expand_combines_all_values():
    base = Environment(
        "base",
        dask={"distributed": {"scheduler": {"work-stealing": False}}},
        cluster={"n_workers": 2, "memory_limit": "1 GiB"},
    )
    sweeps = parse_sweeps(
        [
            "cluster.n_workers=2,4",
            "dask.distributed.scheduler.worker-saturation=1.0,inf",
            "variables.OMP_NUM_THREADS=1",
        ]
    )
    found = expand(base, sweeps)

    assert len(found) == 4
    environment, point = found[-1].environment, found[-1].point
    assert found[-1].name == "n_workers=4,worker-saturation=inf,OMP_NUM_THREADS=1"
    assert environment.name == found[-1].name
    assert found[-1].params == {}
    assert environment.cluster == {"n_workers": 4, "memory_limit": "1 GiB"}
    assert environment.dask["distributed"]["scheduler"] == {
        "work-stealing": False,
        "worker-saturation": float("inf"),
    }
    assert environment.variables == {"OMP_NUM_THREADS": "1"}
    assert point["cluster.n_workers"] == 4
    assert base.cluster["n_workers"] == 2


def test_expand_sets_the_engine():
    (arm,) = expand(Environment("base"), parse_sweeps(["engine=threads"]))

    assert (arm.name, arm.environment.engine) == ("engine=threads", "threads")


def test_expand_leaves_environment_as_it_is_for_parameters():
    base = Environment("base", cluster={"n_workers": 2})
    plain, mixed = (
        expand(base, parse_sweeps(texts))[-1]
        for texts in (["param.method=apply,sum"], ["param.n=1,2", "cluster.n_workers=4"])
    )

    assert (plain.name, plain.environment, plain.params) == ("method=sum", base, {"method": "sum"})
    assert mixed.name == mixed.environment.name == "n=2,n_workers=4"
    assert mixed.params == {"n": 2}
    assert mixed.environment.cluster == {"n_workers": 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clster.n_workers=2", "cannot set 'clster': did you mean 'cluster'?"),
        ("engine=frosky", "must be engine=dask,frisky,threads,synchronous or some"),
        ("engine.name=frisky", "must be engine=dask"),
        ("cluster=2", "must be PART.NAME=VALUE"),
        ("cluster.n_workers=[2", r"value '\[2' is not YAML"),
        ("cluster.n_workers=", "must be PART.NAME=VALUE"),
        ("cluster.n_workers=2,,4", "must be PART.NAME=VALUE"),
    ],
)
def test_parse_sweeps_rejects_invalid_text(text, message):
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        parse_sweeps([text])


def test_parse_sweeps_keeps_lists_together():
    sweeps = parse_sweeps(["cluster.worker_vm_types=[a, b],[c]"])

    assert sweeps == {"cluster.worker_vm_types": [["a", "b"], ["c"]]}


def test_expand_pins_releases_and_keeps_other_packages_equal(monkeypatch):
    asked = []

    def resolve(requirements, python, *, prefer, **_):
        lines = [requirement.text for requirement in requirements]
        asked.append((lines, prefer))
        return "\n".join([*(line for line in lines if "==" in line), "numpy==2.1.0"]), None

    monkeypatch.setattr(builds, "resolve", resolve)
    base = Environment("base", packages=("dask[array]", "distributed", "zarr"))
    sweeps = parse_sweeps(["packages.dask=2024.11.2,2024.12.1", "packages.Zarr=2.18.10"])

    first, second = expand(base, sweeps)

    assert first.name == first.environment.name == "dask=2024.11.2,Zarr=2.18.10"
    assert first.environment.packages == (
        *("dask[array]==2024.11.2", "distributed==2024.11.2", "zarr==2.18.10", "numpy==2.1.0"),
    )
    assert second.environment.packages[:2] == ("dask[array]==2024.12.1", "distributed==2024.12.1")
    assert all(prefer["numpy"] == "2.1.0" for _, prefer in asked[-2:])


def test_sweep_of_packages_has_no_other_arm(tmp_path, monkeypatch):
    monkeypatch.setattr(builds, "resolve", lambda *_, **__: ("dask==2024.11.2", None))
    with pytest.raises(UsageError, match="a sweep of packages takes one environment"):
        plan_experiment(
            Selection(["sched.tree"], environments=["baseline", "current"],
                      sweeps={"packages.dask": ["2024.11.2"]}),
            store=tmp_path,
        )  # fmt: skip
