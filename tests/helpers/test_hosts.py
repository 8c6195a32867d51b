"""The hosts of the tests: what a link does is measured from outside, and nothing is left."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from helpers.clusters.project import wait_until
from validation.hosts import UPTIME_STEP_S, Hosts

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("namespaces")]

#: Receives what a connection sends, sends back the rate in Mbit/s; answers each datagram.
SERVER = """
import socket, threading, time
stream = socket.create_server(("", 5000))
datagrams = socket.socket(type=socket.SOCK_DGRAM)
datagrams.bind(("", 5000))

def answer():
    while True:
        datagrams.sendto(*datagrams.recvfrom(100))

threading.Thread(target=answer).start()
print("listens", flush=True)
while True:
    connection, _ = stream.accept()
    with connection:
        connection.recv(1)
        begin, n_bytes = time.perf_counter(), 0
        while data := connection.recv(2**20):
            n_bytes += len(data)
        connection.send(str(n_bytes * 8e-6 / (time.perf_counter() - begin)).encode())
"""
#: Prints the rate of each attempt at sending bytes.
SEND = """
import socket, sys
for _ in range(3):
    with socket.create_connection((sys.argv[1], 5000)) as connection:
        connection.sendall(bytes(int(sys.argv[2])))
        connection.shutdown(socket.SHUT_WR)
        print(connection.recv(100).decode())
"""
#: Sends datagrams one after the other and prints the ms to each answer, or nan.
ASK = """
import socket, sys, time
with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
    datagrams.settimeout(float(sys.argv[3]))
    for number in range(int(sys.argv[2])):
        begin, text = time.perf_counter(), str(number).encode()
        datagrams.sendto(text, (sys.argv[1], 5000))
        try:
            while datagrams.recv(100) != text:  # a late answer to an earlier one
                pass
            print(1000 * (time.perf_counter() - begin))
        except TimeoutError:
            print("nan")
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    with Hosts(2, folder, rate=100, latency=2.5, clocks={"node1": 3.0}) as hosts:
        hosts.start("node0", [sys.executable, "-c", SERVER])
        wait_until(lambda: hosts.log("node0") == "listens\n", "server")
        yield hosts


@pytest.fixture(autouse=True)
def links_are_alike_again(request):
    yield
    if "hosts" in request.fixturenames:
        hosts = request.getfixturevalue("hosts")
        for host in hosts.pids:
            hosts.set_link(host, rate=100, latency=2.5, loss=0, up=True)


def numbers(hosts, script, *arguments):
    done = hosts.run([sys.executable, "-c", script, hosts.ip("node0"), *map(str, arguments)])
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


@pytest.mark.parametrize("rate", [20, 200])
def test_link_passes_its_rate(hosts, rate):
    hosts.set_link("client", rate=1000, latency=0)
    hosts.set_link("node0", rate=rate, latency=0)
    n_bytes = rate * 10**6 // 8 // 2

    before, begin = hosts.counters("node0"), time.perf_counter()
    rates = numbers(hosts, SEND, n_bytes)
    seconds = time.perf_counter() - begin
    received, sent = (now - then for now, then in zip(hosts.counters("node0"), before, strict=True))

    assert max(rates) == pytest.approx(rate, rel=0.05)  # a busy machine slows single attempts
    assert received * 8e-6 / seconds < rate
    # Headers of IP and TCP; what the queue of a link drops is sent again by the sender's kernel.
    assert 3 * n_bytes < received < 3.1 * n_bytes
    assert 0 < sent < received / 20


def test_link_delays_each_packet(hosts):
    for latency, expected in ((2.5, 10), (10, 25)):  # 2 * (latency of one link + of the other)
        hosts.set_link("node0", latency=latency)

        answers = numbers(hosts, ASK, 40, 5)

        assert expected <= min(answers) < 1.05 * expected + 0.5


def test_link_loses_packets(hosts):
    hosts.set_link("node0", loss=20, latency=0)
    hosts.set_link("client", latency=0)
    before = hosts.counters("node0")

    answers = numbers(hosts, ASK, 400, 0.02)

    # Headers of IP and UDP and a number of one to three digits.
    asked = (hosts.counters("node0")[0] - before[0]) / (20 + 8 + 2.7)
    assert asked == pytest.approx(0.8 * 400, rel=0.12)  # 4 standard deviations are 32
    assert sum(answer == answer for answer in answers) == pytest.approx(0.64 * 400, rel=0.16)


def test_link_that_is_cut_passes_nothing(hosts):
    assert not any(answer != answer for answer in numbers(hosts, ASK, 3, 5))
    hosts.set_link("node0", up=False)
    before = hosts.counters("node0")

    answers = numbers(hosts, ASK, 3, 0.1)

    assert all(answer != answer for answer in answers)
    assert hosts.counters("node0") == before
    hosts.set_link("node0", up=True)
    assert not any(answer != answer for answer in numbers(hosts, ASK, 3, 5))


def test_host_has_its_own_name_processes_and_clocks(hosts, tmp_path):
    script = (
        "import os, socket, time;"
        "print(socket.gethostname(), os.getpid(), time.time(), time.monotonic(),"
        "open('/proc/sys/kernel/random/boot_id').read())"
    )

    def look(host):
        done = hosts.start(host, [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        name, pid, wall, steady, boot = done.communicate()[0].split()
        return name, int(pid), float(wall) - time.time(), float(steady) - time.monotonic(), boot

    seen = {host: look(host) for host in hosts.pids}
    hosts.set_clock("node1", -2.0)
    later = look("node1")

    assert [seen[host][0] for host in seen] == ["node0", "node1", "client"]
    assert seen["node1"][1] < 20
    ahead = [seen[host][2] for host in seen]
    assert ahead == pytest.approx([0, 3, 0], abs=0.9)
    assert later[2] == pytest.approx(-2, abs=0.9)
    steady = [seen[host][3] for host in seen]
    assert steady == pytest.approx([UPTIME_STEP_S, 2 * UPTIME_STEP_S, 0], abs=0.9)
    assert len({seen[host][4] for host in seen}) == 3


def names_of_namespaces(processes):
    """Yield each namespace that processes are in or hold open, such as "net:[4026531840]"."""
    for process in processes:
        for folder in ("ns", "fd"):
            with suppress(OSError):  # it ended
                for path in Path(f"/proc/{process.pid}/{folder}").iterdir():
                    with suppress(OSError):
                        if re.fullmatch(r"\w+:\[\d+\]", name := os.readlink(path)):
                            yield name


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_killed_test_leaves_nothing(tmp_path, sent):
    script = (
        "import sys, time; from pathlib import Path; from validation.hosts import Hosts\n"
        f"with Hosts(3, Path({str(tmp_path)!r})) as hosts:\n"
        "    hosts.start_cluster()\n"
        "    print('runs', flush=True)\n"
        "    time.sleep(600)\n"
    )
    mounts, interfaces = Path("/proc/self/mountinfo").read_text(), os.listdir("/sys/class/net")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "runs\n"
    started = psutil.Process(process.pid).children(recursive=True)
    own = {os.readlink(path) for path in Path("/proc/self/ns").iterdir()}
    new = {name for name in names_of_namespaces(started) if name not in own}
    kinds = [name.split(":")[0] for name in new]
    assert {kind: kinds.count(kind) for kind in ("net", "uts", "pid", "mnt", "user")} == {
        "net": 4, "uts": 4, "pid": 4, "mnt": 4, "user": 1,
    }  # fmt: skip

    process.send_signal(sent)
    process.wait(120)
    process.stdout.close()

    _, left = psutil.wait_procs(started, timeout=120)
    assert not left
    assert not new & set(names_of_namespaces(psutil.process_iter()))
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert os.listdir("/sys/class/net") == interfaces
