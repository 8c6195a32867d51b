"""Slurm on the loopback interface for one test: own munge, ports, key and configuration."""

import getpass
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from helpers.clusters.project import accepts_connections, free_port, require, stop, wait_until

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
KillWait=2
ReturnToService=2
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=16 RealMemory=16000
PartitionName=main Nodes=node1 Default=YES MaxTime=INFINITE State=UP
PartitionName=closed Nodes=node1 State=DOWN
"""


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the variables with which ``sbatch`` and ``squeue`` find a Slurm with one node.

    Its partition ``main`` runs jobs, ``closed`` only queues them.
    """
    controller, daemon = require("slurmctld", "slurmctld"), require("slurmd", "slurmd")
    munged = require("munged", "munge")
    require("sbatch", "slurm-client")
    ports = {"controller_port": free_port(), "node_port": free_port()}
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    facts = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": folder, **ports}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**facts))
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    munge = [munged, "--foreground", "--force", f"--key-file={key}"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "seed", "log")]
    munge.append(f"--socket={folder}/munge.socket")
    variables = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    with ExitStack() as stack:
        for command, is_up in [
            (munge, (folder / "munge.socket").exists),
            ([controller, "-D"], lambda: accepts_connections(ports["controller_port"])),
            ([daemon, "-D", "-N", "node1"], lambda: "idle" in _states(variables)),
        ]:
            log_path = folder / f"{Path(command[0]).name}.log"
            with log_path.open("wb") as log:
                server = subprocess.Popen(
                    command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            stack.callback(stop, server)
            wait_until(is_up, f"{command[0]}: {log_path.read_text()}")
        yield {"SLURM_CONF": variables["SLURM_CONF"]}


def _states(variables: dict[str, str]) -> str:
    command = ["sinfo", "--noheader", "--partition=main", "--format=%T"]
    return subprocess.run(command, env=variables, capture_output=True, text=True).stdout


def jobs(variables: dict[str, str]) -> list[str]:
    """Return number, partition and state of each job that is queued or runs."""
    command = ["squeue", "--noheader", "--format=%i %P %T"]
    variables = {**os.environ, **variables}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()
