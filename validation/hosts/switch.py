"""Process 1 of the test's hosts: makes the hosts and carries the packets between them.

``python switch.py RATE LATENCY LOSS NAME...`` runs in new namespaces, which are the host of the
client. Prints its process id as its parent sees it, then a line when all hosts are up. It ends when
its input ends, and with it the kernel ends all hosts.
"""

import fcntl
import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

#: Folder of the hosts, in memory: it ends with them.
FOLDER = "/mnt"
#: Bytes of the largest packet.
MTU = 9000
#: Seconds of packets that wait in front of a link before the next is dropped, but `MIN_WAITING` of
#: the largest packets: a rate of 1 Mbit/s sends one in 72 ms.
MAX_WAIT_S = 0.05
MIN_WAITING = 16
#: Seconds by which the monotonic clock of each host is ahead of the host before.
UPTIME_STEP_S = 1000
#: For ioctl: make the interface that an open /dev/net/tun is.
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


@dataclass
class Link:
    """What connects a host to the switch, with one queue in each direction."""

    interface: int
    rate: float
    latency: float
    loss: float
    up: bool = True
    sent_until: float = 0.0
    received_until: float = 0.0

    def drops(self) -> bool:
        """Return whether the link loses a packet."""
        return not self.up or random.random() * 100 < self.loss

    def end(self, begin: float, until: float, n_bytes: int) -> float | None:
        """Return when a direction that is busy has passed a packet on; None if too many wait."""
        waiting = max(MAX_WAIT_S, MIN_WAITING * MTU * 8e-6 / self.rate)
        if until - begin > waiting:
            return None
        return max(begin, until) + n_bytes * 8e-6 / self.rate


class Switch:
    """Carries each packet over the link of its sender and the link of its receiver."""

    def __init__(self, links: list[Link]) -> None:
        self.links = links
        self.control = socket.socket(socket.AF_UNIX)
        self.control.bind(f"{FOLDER}/control")
        self.control.listen()
        #: (time, number, receiver, packet, whether the packet has passed both links).
        self._events: list[tuple[float, int, Link, bytes, bool]] = []
        self._number = count()

    def run(self) -> None:
        """Carry packets until the input ends."""
        sender_of = {link.interface: link for link in self.links}
        sources: list[Any] = [0, self.control, *sender_of]
        while True:
            while self._events and self._events[0][0] <= monotonic():
                self._pass_on(*heapq.heappop(self._events))
            wait_s = max(0.0, self._events[0][0] - monotonic()) if self._events else None
            for source in select.select(sources, [], [], wait_s)[0]:
                if source == 0:
                    return
                if source is self.control:
                    self._set_link()
                else:
                    self._read(sender_of[source])

    def _read(self, sender: Link) -> None:
        for _ in range(64):
            try:
                packet = os.read(sender.interface, MTU)
            except BlockingIOError:
                return
            number = packet[19] - 1  # of the host: the last byte of the receiver's IPv4 address
            if packet[0] >> 4 != 4 or number >= len(self.links) or sender.drops():
                continue
            end = sender.end(monotonic(), sender.sent_until, len(packet))
            if end is not None:
                sender.sent_until = end
                self._add(end + sender.latency / 1000, self.links[number], packet, False)

    def _pass_on(self, time: float, _: int, receiver: Link, packet: bytes, passed: bool) -> None:
        if passed:
            if receiver.up:
                os.write(receiver.interface, packet)
        elif not receiver.drops():
            end = receiver.end(time, receiver.received_until, len(packet))
            if end is not None:
                receiver.received_until = end
                self._add(end + receiver.latency / 1000, receiver, packet, True)

    def _add(self, time: float, receiver: Link, packet: bytes, passed: bool) -> None:
        heapq.heappush(self._events, (time, next(self._number), receiver, packet, passed))

    def _set_link(self) -> None:
        caller, _ = self.control.accept()
        with caller:
            number, settings = json.loads(caller.recv(1000))
            for name, value in settings.items():
                setattr(self.links[number], name, value)
            caller.send(b"done")


def _call(*command: object, text: str | None = None) -> None:
    words = [str(word) for word in command]
    subprocess.run(words, input=text, check=True, text=True, stdout=subprocess.DEVNULL)


def _interface(name: str) -> int:
    interface = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI)
    fcntl.ioctl(interface, TUNSETIFF, request)
    return interface


def _start_host(number: int, name: str) -> int:
    """Start a host without a network; return its process id here."""
    with open(f"{FOLDER}/boot-{name}", "w") as file:
        file.write(f"{number + 1:08x}-0000-4000-8000-{os.urandom(6).hex()}\n")
    uptime = (number + 1) * UPTIME_STEP_S
    script = (
        # Of the processes that it inherits, none stays a zombie: exec keeps the trap.
        f"trap '' CHLD; hostname {name}; read -r pid _ < /proc/self/stat; echo $pid; "
        "mount -t proc proc /proc; "
        f"mount --bind {FOLDER}/boot-{name} /proc/sys/kernel/random/boot_id; "
        "exec sleep infinity"
    )
    words = ["unshare", "--net", "--uts", "--pid", "--mount", "--time"]
    words += [f"--monotonic={uptime}", f"--boottime={uptime}", "--fork", "sh", "-ec", script]
    host = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    return int(host.stdout.readline())


def main(rate: float, latency: float, loss: float, names: list[str]) -> None:
    print(os.readlink("/proc/self"), flush=True)  # outside of the new namespaces
    _call("mount", "-t", "proc", "proc", "/proc")
    _call("mount", "-t", "tmpfs", "hosts", FOLDER)
    _call("hostname", "client")
    pids: dict[str, int] = {}
    links = []
    for number, name in enumerate([*names, "client"]):
        links.append(Link(_interface(f"tun{number}"), rate, latency, loss))
        pids[name] = os.getpid() if name == "client" else _start_host(number, name)
        inside: list[Any] = []
        if name != "client":
            _call("ip", "link", "set", f"tun{number}", "netns", pids[name])
            inside = ["nsenter", f"--net=/proc/{pids[name]}/ns/net"]
        lines = [
            "link set lo up",
            f"link set tun{number} name eth0",
            # No packets but those of the programs on the hosts.
            f"link set eth0 addrgenmode none mtu {MTU}",
            "link set eth0 up",
            f"addr add 10.0.0.{number + 1}/24 dev eth0",
        ]
        _call(*inside, "ip", "-batch", "-", text="\n".join(lines))
    with open(f"{FOLDER}/hosts.json", "w") as file:
        json.dump(pids, file)
    switch = Switch(links)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies of processes that it inherits
    print("ready", flush=True)
    switch.run()


if __name__ == "__main__":
    link_rate, link_latency, link_loss, *host_names = sys.argv[1:]
    main(float(link_rate), float(link_latency), float(link_loss), host_names)
