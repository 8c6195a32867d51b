"""A dask-gateway server with its local backend: clusters are processes of this machine."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.clusters.project import MARK, accepts_connections, free_port, stop, wait_until

WORKER = "distributed.cli.dask_worker"
CONFIGURATION = """
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.DaskGateway.address = "127.0.0.1:{private_port}"
c.Proxy.address = "127.0.0.1:{port}"
c.UnsafeLocalBackend.clusters_directory = "{folder}"
c.UnsafeLocalBackend.sigint_timeout = 5
c.ClusterConfig.scheduler_cmd = ["{python}", "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = ["{python}", "-m", "{worker_module}"]
c.ClusterConfig.environment = {mark}
c.ClusterConfig.worker_memory = {memory_limit}
c.ClusterConfig.worker_cores = {nthreads}

from dask_gateway_server.options import Integer, Options
c.Backend.cluster_options = Options(
    Integer("nthreads", default={nthreads}),
    handler=lambda options: {{"worker_cores": options.nthreads}},
)
"""


@contextmanager
def gateway(
    folder: Path, mark: str, *, nthreads: int, memory_limit: int, worker_module: str = WORKER
) -> Iterator[str]:
    """Yield the address of a server whose workers run a module of Python.

    Its clusters have one option, ``nthreads``, whose default is the argument.
    """
    folder.mkdir(parents=True)
    names = ("port", "private_port")
    ports = {name: free_port() for name in names}
    facts = {"folder": folder, "python": sys.executable, "mark": {MARK: mark}}
    facts |= {"nthreads": nthreads, "memory_limit": memory_limit, "worker_module": worker_module}
    (folder / "gateway.py").write_text(CONFIGURATION.format(**facts, **ports))
    command = [sys.executable, "-m", "dask_gateway_server", "-f", str(folder / "gateway.py")]
    log_path = folder / "gateway.log"
    with log_path.open("wb") as log:
        # Not of the group of the test, whose Ctrl-C would reach the proxy before the server.
        server = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{ports['port']}"
        for port in ports.values():
            wait_until(lambda port=port: accepts_connections(port), f"gateway: {log_path}", 60)
        yield address
    finally:
        stop(server)
