"""Specifications of clusters: options, their checks, and their form in a file."""

import signal
import sys
import types

import pytest

from benchkit.measure.cluster.running import open_cluster
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.errors import InvalidClusterError


def error_of(spec):
    with pytest.raises(InvalidClusterError) as caught:
        spec.check()
    text = str(caught.value)
    assert "\n" not in text
    return text


LOCAL = "dask.distributed.LocalCluster"


@pytest.mark.parametrize(
    ("cls", "kwargs", "message"),
    [
        ("dask.distributed.LocalClustr", {}, "does not exist: did you mean 'LocalCluster'?"),
        ("no_such_package.Cluster", {}, "cannot be imported: No module named"),
        ("LocalCluster", {}, "give the dotted name, such as 'dask.distributed.LocalCluster'"),
        ("sys.version", {}, "is not a class: it cannot be called"),
        (LOCAL, {"n_wrkers": 2}, "has no option 'n_wrkers': did you mean 'n_workers'?"),
        (LOCAL, {"memory_limit": "1 GBit"}, "write for example '1 GiB'"),
    ],
)
def test_check_rejects_class_or_option_with_hint(cls, kwargs, message):
    assert message in error_of(ClusterSpec(cls, kwargs))


@pytest.mark.parametrize(
    "kwargs",
    [
        {"n_workers": 1, "threads_per_worker": 2, "memory_limit": "auto", "processes": False},
        {"local_directory": "/x", "death_timeout": 60},  # passed to the workers
        {"memory_limit": "1.5 GiB", "protocol": "tls://"},
        {"memory_limit": 2**30, "resources": {"gpu": 1}},
    ],
)
def test_check_accepts_options_of_class_and_workers(kwargs):
    spec = ClusterSpec(kwargs=kwargs)

    assert spec.check() is None
    assert spec.kwargs == kwargs  # unchanged


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([1, 2], "is not a mapping"),
        ({"class": 3}, "cluster: class is 3: must be text"),
        ({"address": 3}, "cluster: address is 3: must be text"),
        ({"address": "tcp://x:1", "n_workers": 2}, "n_workers with address 'tcp://x:1'"),
        ({"timeout": "soon"}, "timeout is 'soon': write for example '5 min'"),
        ({"timeout": 0}, "timeout is 0: must be above 0"),
    ],
)
def test_from_dict_rejects_invalid_options(options, message):
    with pytest.raises(InvalidClusterError, match=message):
        ClusterSpec.from_dict(options)


def test_to_dict_restores_equal_spec():
    for options in (
        {"class": "dask.distributed.LocalCluster", "n_workers": 3, "memory_limit": "1 GiB"},
        {"address": "tcp://10.0.0.1:8786"},
        {"class": "x.Gateway", "address": "http://gateway:8000", "timeout": "300 s"},
    ):
        written = ClusterSpec.from_dict(options).to_dict()
        assert options.items() <= written.items()
        assert ClusterSpec.from_dict(written).to_dict() == written


def test_merged_replaces_options_of_class_only():
    shaped = ClusterSpec(kwargs={"n_workers": 2, "memory_limit": "1 GiB"}).merged(
        {"memory_limit": "512 MiB"}
    )
    running = ClusterSpec(address="tcp://x:1")

    assert shaped.kwargs == {"n_workers": 2, "memory_limit": "512 MiB"}
    assert running.merged({"memory_limit": "512 MiB"}) is running


@pytest.fixture
def coiled(monkeypatch):
    """Install a module `coiled` whose cluster must not be started."""

    class Cluster:
        def __init__(self, *, n_workers=4, name=None, worker_memory=None):
            raise AssertionError("it was started")

    module = types.ModuleType("coiled")
    module.Cluster = Cluster
    monkeypatch.setitem(sys.modules, "coiled", module)
    monkeypatch.delenv("DASK_COILED__TOKEN", raising=False)


@pytest.mark.parametrize("stdin", ["no terminal", "none at all"])
def test_check_rejects_coiled_without_login(coiled, monkeypatch, tmp_path, stdin):
    with (tmp_path / "empty").open("w+") as empty:
        monkeypatch.setattr(sys, "stdin", empty if stdin == "no terminal" else None)
        spec = ClusterSpec("coiled.Cluster", {"n_workers": 2})

        assert "run `coiled login` once, or set DASK_COILED__TOKEN" in error_of(spec)
        with pytest.raises(InvalidClusterError), open_cluster(spec):
            pass


def test_check_uses_signature_of_coiled(coiled, monkeypatch):
    monkeypatch.setenv("DASK_COILED__TOKEN", "secret")

    assert "did you mean 'worker_memory'?" in error_of(
        ClusterSpec("coiled.Cluster", {"worker_memry": "8 GiB"})
    )
    ClusterSpec("coiled.Cluster", {"worker_memory": "8 GiB"}).check()


@pytest.mark.parametrize("name", ["scheduler_file", "scheduler_ip", "asynchronous", "loop"])
def test_check_refuses_options_that_a_local_cluster_cannot_use(name):
    with pytest.raises(InvalidClusterError, match=f"LocalCluster has no option '{name}': "):
        ClusterSpec(kwargs={name: "x"}).check()


def test_check_refuses_scheduler_file_for_any_class():
    spec = ClusterSpec("dask.distributed.SSHCluster", {"scheduler_file": "s.json"})

    with pytest.raises(InvalidClusterError, match="is given by `address`"):
        spec.check()


def test_scheduler_address_reads_scheduler_file(tmp_path):
    path = tmp_path / "sched.json"
    path.write_text('{"type": "Scheduler", "address": "tcp://10.0.0.1:8786"}')
    spec = ClusterSpec.from_dict({"address": str(path)})

    assert spec.scheduler_address() == "tcp://10.0.0.1:8786"
    assert spec.check() is None
    assert ClusterSpec(address="tcp://x:1").scheduler_address() == "tcp://x:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "No such file"), ("{", "not JSON"), ("[]", "has an address"), ("{}", "has an address")],
)
def test_check_refuses_scheduler_file_without_address(tmp_path, text, message):
    path = tmp_path / "sched.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(InvalidClusterError, match=message):
        ClusterSpec(address=str(path)).check()


def test_check_names_the_program_that_submits_jobs(tmp_path, monkeypatch):
    (tmp_path / "queues.py").write_text(
        "class Job:\n    submit_command = 'no-such-qsub -x'\n"
        "class PBSCluster:\n    job_cls = Job\n    def __init__(self, n_workers=0): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert "'no-such-qsub'" in error_of(ClusterSpec("queues.PBSCluster", {"n_workers": 2}))
    assert "1 or more" in error_of(ClusterSpec("queues.PBSCluster", {"n_workers": 0}))


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"n_workers": 4}, 64.0),
        ({"n_workers": 1000}, 1060.0),
        ({"address": "tcp://127.0.0.1:8786"}, 60.0),
        ({"class": "coiled.Cluster", "n_workers": 4}, 900.0),
        ({"class": "coiled.Cluster", "n_workers": 4, "timeout": "20 min"}, 1200.0),
    ],
)
def test_start_timeout_depends_on_the_kind_of_cluster(options, seconds):
    assert ClusterSpec.from_dict(options).start_timeout_s == seconds


def test_import_of_a_class_keeps_handlers_of_signals(tmp_path, monkeypatch):
    """dask_jobqueue replaces that of SIGINT: Ctrl-C would end a command with exit code 0."""
    text = (
        "import signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit())\nMyCluster = dict"
    )
    (tmp_path / "takes_ctrl_c.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)

    assert ClusterSpec("takes_ctrl_c.MyCluster").factory() is dict
    assert signal.getsignal(signal.SIGINT) is before


def test_options_that_a_job_class_declares_are_known():
    options = {"class": "dask_jobqueue.SLURMCluster", "cores": 1, "memory": "1 GiB", "queue": "a"}

    ClusterSpec.from_dict(options).check(login=False)
    with pytest.raises(InvalidClusterError, match="has no option 'core': did you mean 'cores'"):
        ClusterSpec.from_dict({**options, "core": 1}).check(login=False)
