"""S3 servers on this machine: an emulator in this process, and a real one (Ceph RADOS Gateway)."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

#: Name of the bucket that both servers have.
BUCKET = "bench"
ACCESS_KEY, SECRET_KEY = "benchaccess", "benchsecret"
#: Programs of Debian's packages ceph-mon, ceph-osd, radosgw and ceph-common.
PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
#: Attempts of a command: the monitor refuses a request that a client sends before it has the map of
#: monitors; without authentication the first request can be that early.
ATTEMPTS = 20
TOO_EARLY = ("wrong fsid", "problem getting command descriptions")
#: Seconds until the server answers; 20 on a quiet machine.
START_S = 240

# One monitor, one object store in memory. Without authentication between them, and without the
# second protocol of messages, for which clients would wait at a port that is not the usual one.
_CONFIGURATION = """
[global]
fsid = {fsid}
mon host = [v1:127.0.0.1:{monitor_port}]
auth cluster required = none
auth service required = none
auth client required = none
public addr = 127.0.0.1
cluster addr = 127.0.0.1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail crit = 1
osd crush chooseleaf type = 0
run dir = {folder}/run
log file = {folder}/$name.log
pid file = {folder}/run/$name.pid
admin socket = {folder}/run/$name.$pid.asok
ms bind msgr2 = false
ms mon client mode = crc
[mon.a]
mon data = {folder}/mon
mon addr = v1:127.0.0.1:{monitor_port}
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 1073741824
osd class load list = *
osd class default list = *
[client.admin]
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw data = {folder}/rgw
keyring = {folder}/keyring
"""


def variables(url: str) -> dict[str, str]:
    """Return the environment of a client of a server."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def emulator() -> Iterator[str]:
    """Yield the address of an emulated server with a bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        create_bucket(url)
        yield url
    finally:
        server.stop()


def create_bucket(url: str, name: str = BUCKET) -> None:
    """Create a bucket on a server."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=name)
    client.close()


@contextmanager
def rados_gateway(folder: Path) -> Iterator[str]:
    """Yield the address of a RADOS Gateway with a bucket; skip without its programs, fail in CI."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        reason = f"{', '.join(missing)}: not installed (ceph-mon ceph-osd radosgw ceph-common)"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    for name in ("mon", "osd", "rgw", "run"):
        (folder / name).mkdir(parents=True)
    (folder / "keyring").touch()
    fsid, monitor_port, port = str(uuid4()), _free_port(), _free_port()
    configuration = folder / "ceph.conf"
    configuration.write_text(
        _CONFIGURATION.format(fsid=fsid, folder=folder, monitor_port=monitor_port, port=port)
    )
    servers: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        with (folder / f"{command[0]}.out").open("wb") as log:
            servers.append(subprocess.Popen(_with(command), stdout=log, stderr=log))

    def call(*command: str) -> str:
        for _ in range(ATTEMPTS):
            done = subprocess.run(_with(command), capture_output=True, text=True, timeout=START_S)
            if not any(text in done.stderr for text in TOO_EARLY):
                break
            time.sleep(0.5)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _with(command: tuple[str, ...]) -> list[str]:
        if command[0] == "monmaptool":
            return list(command)
        # `ceph` is a script for Debian's Python, which may be another than the one in PATH.
        words = ["/usr/bin/python3", shutil.which("ceph")] if command[0] == "ceph" else command[:1]
        return [*map(str, words), "-c", str(configuration), *command[1:]]

    monitor = ("ceph-mon", "-i", "a", "--mon-data", f"{folder}/mon")
    store = ("ceph-osd", "-i", "0", "--osd-data", f"{folder}/osd")
    try:
        address = f"[v1:127.0.0.1:{monitor_port}]"
        monmap = f"{folder}/monmap"
        call("monmaptool", "--create", "--addv", "a", address, "--fsid", fsid, monmap)
        call(*monitor, "--mkfs", "--monmap", monmap)
        start(*monitor, "-f")
        osd = str(uuid4())
        call("ceph", "osd", "new", osd)
        call(*store, "--mkfs", "--osd-uuid", osd)
        for _ in range(ATTEMPTS):
            start(*store, "-f")
            while servers[-1].poll() is None and " 1 up" not in call("ceph", "osd", "stat"):
                time.sleep(0.5)
            if servers[-1].poll() is None:
                break
            servers.pop()
        start("radosgw", "-n", "client.admin", "-f")
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, folder, servers)
        user = ("user", "create", "--uid=bench", "--display-name=bench")
        call("radosgw-admin", *user, f"--access-key={ACCESS_KEY}", f"--secret={SECRET_KEY}")
        create_bucket(url)
        yield url
    finally:
        for server in reversed(servers):
            server.kill()
            server.wait()


def _wait_for(url: str, folder: Path, servers: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=60).close()
            return
        except (urllib.error.URLError, OSError):
            are_running = all(server.poll() is None for server in servers)
            assert are_running, _ends_of_logs(folder)
            assert time.monotonic() < until, f"{url}: no answer: {_ends_of_logs(folder)}"
            time.sleep(0.5)


def _ends_of_logs(folder: Path) -> str:
    return "\n".join(f"{log.name}: {log.read_text()[-500:]}" for log in folder.glob("*.out"))


def _free_port() -> int:
    """Return a free port below those that the system gives to connections of other processes."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


if __name__ == "__main__":  # by hand: prints the variables of a client, until Ctrl-C
    with rados_gateway(Path(sys.argv[1])) as address:
        print(json.dumps(variables(address)), flush=True)
        time.sleep(1e6)
