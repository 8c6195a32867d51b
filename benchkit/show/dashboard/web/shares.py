"""Visitors shared by several processes: who has the least to do takes the next.

Processes that listen on one socket race for its connections, and who is awake takes all that wait:
of twenty visitors one process got fifteen, and all of them waited for it.
"""

from __future__ import annotations

import mmap
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tornado import tcpserver
from tornado.ioloop import IOLoop
from tornado.process import task_id

from benchkit.show.dashboard.web.turns import turns_here

__all__ = ["Shares"]

#: How long somebody who came counts: then he has his page, or waits for its content.
RECENT_S = 0.3
#: Who leaves a connection to another looks again after this time,
AGAIN_S = 0.002
#: and takes it after this one: the other may be at work, or gone.
PATIENCE_S = 0.25


class Shares:
    """Who takes how many visitors; made before the processes are.

    Parameters
    ----------
    n_processes : int
        Processes that will listen on one socket.
    """

    def __init__(self, n_processes: int) -> None:
        # Of all processes that are forked from this one. Each writes how many it has to serve:
        # those who wait for their content, and those who just came.
        self._busy = memoryview(mmap.mmap(-1, 8 * n_processes)).cast("q")

    def install(self) -> None:
        """Let servers of this process, and of those forked from it, take their share only."""
        tcpserver.add_accept_handler = self.listen

    def listen(
        self, sock: socket.socket, callback: Callable[[socket.socket, Any], None]
    ) -> Callable[[], None]:
        """Do what `tornado.netutil.add_accept_handler` does, one connection at a time.

        Parameters
        ----------
        sock : socket.socket
            What all processes listen on.
        callback : callable
            Called with the socket and the address of who came.

        Returns
        -------
        callable
            Ends it.
        """
        loop = IOLoop.current()
        mine = task_id() or 0
        self._busy[mine] = 0  # of one before, which died
        recent: deque[float] = deque()
        waiting = select.poll()
        waiting.register(sock, select.POLLIN)
        left_since: float | None = None
        ended = False

        def look_again() -> None:
            nonlocal left_since
            if ended:
                return
            if not waiting.poll(0):  # another one took it
                left_since = None
            loop.update_handler(sock, IOLoop.READ)

        def somebody_came(fd: Any, events: int) -> None:
            nonlocal left_since
            now = time.monotonic()
            while recent and recent[0] < now - RECENT_S:
                recent.popleft()
            self._busy[mine] = len(recent) + len(turns_here())
            left_since = left_since or now
            if self._busy[mine] > min(self._busy) and now - left_since < PATIENCE_S:
                loop.update_handler(sock, 0)
                loop.call_later(AGAIN_S, look_again)
                return
            left_since = None
            try:
                connection, address = sock.accept()
            except (BlockingIOError, ConnectionAbortedError):  # another one was quicker, or it left
                return
            recent.append(now)
            self._busy[mine] += 1
            callback(connection, address)

        def end() -> None:
            nonlocal ended
            ended = True
            loop.remove_handler(sock)

        loop.add_handler(sock, somebody_came, IOLoop.READ)
        return end
