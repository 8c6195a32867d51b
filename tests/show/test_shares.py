"""How real processes on one socket share those who come."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from socket import create_connection

import pytest

SERVER = """
import sys, time
from tornado import process, tcpserver
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets
from benchkit.show.dashboard.web.shares import Shares

class Answer(tcpserver.TCPServer):
    def handle_stream(self, stream, address):
        me = process.task_id()
        time.sleep(float(sys.argv[1 + me]))  # at work, as a process that makes a page
        IOLoop.current().add_future(stream.write(str(me).encode()), lambda sent: stream.close())

sockets = bind_sockets(0, "127.0.0.1")
Shares(2).install()
print(sockets[0].getsockname()[1], flush=True)
process.fork_processes(2)
server = Answer()
server.add_sockets(sockets)
IOLoop.current().start()
"""


@pytest.fixture
def answers():
    """Return who answered each of many that come at once, and after how many seconds."""
    started = []

    def ask(n, *work_s):
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, *map(str, work_s)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(server)
        port = int(server.stdout.readline())
        time.sleep(1.0)  # both listen

        def come(_):
            began = time.monotonic()
            with create_connection(("127.0.0.1", port)) as connection:
                return int(connection.recv(1)), time.monotonic() - began

        with ThreadPoolExecutor(n) as pool:
            return list(pool.map(come, range(n)))

    yield ask
    for server in started:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate(timeout=10)


def test_who_is_quick_leaves_the_other_its_share_of_a_crowd(answers):
    found = Counter(who for who, _ in answers(20, 0.0, 0.02))

    assert found.total() == 20
    assert min(found[0], found[1]) >= 8


def test_one_that_is_stuck_holds_nobody_up(answers):
    found = answers(6, 0.0, 8.0)

    assert Counter(who for who, _ in found)[0] >= 4
    assert max(seconds for who, seconds in found if who == 0) < 6
