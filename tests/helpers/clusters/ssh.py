"""An SSH server for one test: own port, keys and configuration, nothing below /etc."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.clusters.project import MARK, accepts_connections, free_port, require, stop, wait_until

CONFIGURATION = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
SetEnv {mark}
"""


@contextmanager
def ssh_server(folder: Path, mark: str) -> Iterator[dict[str, Any]]:
    """Yield the connection options of a server whose sessions have the variable `MARK`."""
    sshd = require("sshd", "openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it gives up its rights
    for name in ("host_key", "user_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    port = free_port()
    settings = CONFIGURATION.format(port=port, folder=folder, mark=f"{MARK}={mark}")
    (folder / "sshd_config").write_text(settings)
    command = [sshd, "-D", "-e", "-f", str(folder / "sshd_config")]
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: accepts_connections(port), f"sshd: {folder / 'sshd.log'}")
        yield {"port": port, "client_keys": [str(folder / "user_key")], "known_hosts": None}
    finally:
        stop(server)
