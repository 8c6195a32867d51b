"""Start workloads: time until a cluster, client or module is ready."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import ExitStack
from uuid import uuid4

from _scratch_data import new_folder

from benchkit.measure import expect, workload
from benchkit.measure.cluster.restart import restart_workers

_IMPORT = """
import json, sys, time
begin = time.perf_counter()
module = __import__(sys.argv[1], fromlist=["_"])
seconds = time.perf_counter() - begin
print(json.dumps({"name": module.__name__, "modules": len(sys.modules), "seconds": seconds}))
"""
STARTUP_TIMEOUT_S = 60
#: The package that `plugin_install` builds and installs.
PACKAGE = "benchkit_installed"
_METADATA = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: benchkit\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@workload(
    tags=["startup", "latency", "ci", "nightly"],
    deadline_s=120,
    version=2,
    metrics={
        "scheduler_up": "s",
        "first_worker": "s",
        "all_workers": "s",
        "first_task": "s",
    },
)
def cluster(scale, prepared):
    """Start a cluster on this machine, and time each step until its first task is done.

    The cluster is a second one, with as many workers as the measured cluster, but at most two.
    Metrics are the steps: scheduler started, first worker connected, all connected, first task
    done. Stresses overhead only.

    Scale: one cluster, whatever the size. About 1 s on 2 x 1 x 1 GiB.
    Check: the steps are in order, there are as many workers as requested, each in a separate
    process, and the result of the task.
    """
    from distributed import Client, LocalCluster

    count = _workers(scale)
    begin = time.perf_counter()
    started = prepared.enter_context(
        LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            memory_limit=int(scale.memory / scale.workers),
            processes=True,
            dashboard_address=None,
        )
    )
    client = prepared.enter_context(Client(started, set_as_default=False))
    moments = [time.perf_counter()]
    started.scale(count)
    for wanted in (1, count):
        client.wait_for_workers(wanted, timeout=STARTUP_TIMEOUT_S)
        moments.append(time.perf_counter())
    answer = client.submit(_add_one, 41).result()
    moments.append(time.perf_counter())
    pids = list(client.run(os.getpid).values())
    return {"seconds": [moment - begin for moment in moments], "answer": answer, "pids": pids}


@cluster.prepare
def _():
    return ExitStack()  # closed outside of the timed step


@cluster.check
def _(result, scale):
    seconds = result["seconds"]
    expect(result["answer"], equals=42, what="answer of the task")
    expect(len(set(result["pids"])), equals=_workers(scale), what="processes of workers")
    expect(seconds, equals=sorted(seconds), what="moments, in order")
    expect(seconds[0], at_least=0, what="time to the scheduler")
    names = ("scheduler_up", "first_worker", "all_workers", "first_task")
    return dict(zip(names, seconds, strict=True))


@cluster.cleanup
def _(prepared=None):
    if prepared is not None:
        prepared.close()


@workload(tags=["startup", "latency", "ci", "nightly"], metrics={"per_client": "s"})
def connect(client, scale):
    """Connect new clients to a running cluster one after another; each runs one task.

    Stresses overhead only: opening the connections, registering, and closing.

    Scale: 30 clients x fraction, on any cluster. About 1 s on 2 x 1 x 1 GiB.
    Check: the result of each client; the scheduler has no more clients than before.
    """
    from distributed import Client

    begin = time.perf_counter()
    answers = []
    for number in range(_clients(scale)):
        with Client(
            client.scheduler.address, security=client.security, set_as_default=False
        ) as another:
            answers.append(another.submit(_add_one, number, pure=False).result())
    return {"answers": answers, "seconds": time.perf_counter() - begin}


@connect.prepare
def _(client):
    return client.run_on_scheduler(_count_clients)


@connect.check
def _(client, result, scale, prepared):
    wanted = [number + 1 for number in range(_clients(scale))]
    expect(result["answers"], equals=wanted, what="answers")
    end = time.monotonic() + 5
    while (count := client.run_on_scheduler(_count_clients)) > prepared:
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    expect(count, at_most=prepared, what="clients that the scheduler knows")
    return {"per_client": result["seconds"] / len(wanted)}


@workload(
    tags=["nightly", "startup", "restart"],
    features=["nanny"],
    deadline_s=150,
    metrics={"slowest": "s"},
)
def restart(client, scale):
    """Restart all workers of a cluster twice, and run a task on each new worker.

    Stresses nannies and the reset of the scheduler; restarts have hung on busy machines
    (distributed#7312).

    Scale: 2 restarts, whatever the size. About 5 s on 2 x 1 x 1 GiB.
    Check: as many workers as before, each a new process; no task or result is left.
    """
    rounds = []
    for _ in range(2):
        held = client.submit(_add_one, 1, pure=False)
        held.result()
        before = set(client.run(os.getpid).values())
        begin = time.perf_counter()
        restart_workers(client, scale.workers, timeout_s=STARTUP_TIMEOUT_S)
        seconds = time.perf_counter() - begin
        after = list(client.run(os.getpid).values())
        rounds.append(
            {
                "seconds": seconds,
                "workers": len(after),
                "same": len(before & set(after)),
                "tasks": client.run_on_scheduler(_count_tasks),
            }
        )
    return rounds


@restart.check
def _(result, scale):
    expect([each["workers"] for each in result], equals=[scale.workers] * 2, what="workers")
    expect([each["same"] for each in result], equals=[0, 0], what="processes that are the same")
    expect([each["tasks"] for each in result], equals=[0, 0], what="tasks left")
    return {"slowest": max(each["seconds"] for each in result)}


@workload(
    name="import",
    variants={"module": ["distributed", "dask.array", "dask.dataframe"]},
    tags=["startup", "import", "ci[module=distributed]", "nightly"],
    metrics={"modules": "1", "import_time": "s"},
)
def import_(scale, *, module):
    """Import a part of Dask in a new Python process.

    Stresses overhead only: the cost of every new worker and every short script. The number of
    imported modules is a metric that does not depend on the machine.

    Scale: 3 processes x fraction, one after another, whatever the cluster.
    About 3 s on 2 x 1 x 1 GiB.
    Check: each process imported this module, with the same number of modules.
    """
    answers = []
    for _ in range(max(2, round(3 * scale.fraction))):
        command = [sys.executable, "-c", _IMPORT, module]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        answers.append(json.loads(done.stdout))
    return answers


@import_.check
def _(result, *, module):
    expect([each["name"] for each in result], equals=[module] * len(result), what="modules")
    counts = [each["modules"] for each in result]
    expect(counts, equals=[counts[0]] * len(counts), what="modules imported in each process")
    expect(counts, at_least=100, what="modules imported")
    seconds = sorted(each["seconds"] for each in result)
    return {"modules": counts[0], "import_time": seconds[0]}


@workload(
    variants={"restart": [False, True]},
    tags=["startup", "import", "ci[restart=False]", "nightly"],
    requires=["pip"],
    features=["nanny"],
    deadline_s=150,
)
def plugin_install(client, prepared, *, restart):
    """Install a package on all workers with a plugin, and use it there.

    The package is a wheel that is built locally, so that no network is needed. Without a restart
    the workers install and import it; with a restart their nannies install it and restart the
    workers. Stresses overhead only: the cost of adding packages to a running cluster.

    Scale: one package, whatever the cluster. About 1 s on 2 x 1 x 1 GiB, more with a restart.
    Check: each worker imports this package, not an earlier one; its process is new, or not.
    """
    before = client.run(os.getpid)
    plugin = _install_plugin(prepared, restart=restart)
    # Releases before `register_plugin` have one method for each kind.
    register = getattr(client, "register_plugin", None) or client.register_worker_plugin
    register(plugin, name=prepared["label"])
    client.wait_for_workers(len(before), timeout=STARTUP_TIMEOUT_S)
    reports = client.run(_use_package)
    return {"reports": list(reports.values()), "before": list(before.values())}


@plugin_install.prepare
def _():
    folder, label = new_folder(), uuid4().hex
    wheel = os.path.join(folder, f"{PACKAGE}-1.0-py3-none-any.whl")
    info = f"{PACKAGE}-1.0.dist-info"
    files = {
        f"{PACKAGE}.py": f"LABEL = {label!r}\n",
        f"{info}/METADATA": _METADATA,
        f"{info}/WHEEL": _WHEEL,
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)
    return {"wheel": wheel, "label": label}


@plugin_install.check
def _(result, scale, prepared, *, restart):
    reports = result["reports"]
    labels = [label for label, _ in reports]
    expect(labels, equals=[prepared["label"]] * scale.workers, what="the package on each worker")
    kept = {pid for _, pid in reports} & set(result["before"])
    expect(len(kept), equals=0 if restart else scale.workers, what="processes that are the same")


@plugin_install.cleanup
def _(client, *, restart, prepared=None):
    if prepared is not None:
        client.unregister_worker_plugin(prepared["label"], nanny=restart)
        shutil.rmtree(os.path.dirname(prepared["wheel"]), ignore_errors=True)


def _install_plugin(prepared, *, restart):
    from distributed import NannyPlugin, WorkerPlugin

    class OnWorker(WorkerPlugin):
        def setup(self, worker):
            _install(prepared["wheel"])

        def teardown(self, worker):
            _remove()

    class OnNanny(NannyPlugin):
        restart = True

        def setup(self, nanny):
            _install(prepared["wheel"])  # a spawned process has the import path of its parent

        def teardown(self, nanny):
            _remove()

    return OnNanny() if restart else OnWorker()


def _install(wheel):
    """Install a wheel into a folder next to it for this process, first on the import path."""
    target = os.path.join(tempfile.mkdtemp(dir=os.path.dirname(wheel)), PACKAGE)
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*command, "--target", target, wheel], check=True, capture_output=True)
    _remove()
    sys.path.insert(0, target)


def _remove():
    sys.path[:] = [path for path in sys.path if os.path.basename(path) != PACKAGE]
    sys.modules.pop(PACKAGE, None)


def _use_package():
    module = __import__(PACKAGE)
    return module.LABEL, os.getpid()


def _workers(scale):
    return min(2, scale.workers)


def _clients(scale):
    return max(3, round(30 * scale.fraction))


def _add_one(number):
    return number + 1


def _count_clients(dask_scheduler):
    return len(dask_scheduler.clients)


def _count_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)
