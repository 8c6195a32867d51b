"""HTTP proxy on this machine that injects faults between a client and a server.

Answers with status 503, resets connections, forwards requests but loses the answers, and stalls.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

#: Seconds of a stall: less than the timeout of a request.
STALL_S = 3.0
#: Shares of the requests that are disturbed.
FAULTS = {"unavailable": 0.05, "reset": 0.03, "lost": 0.02, "stall": 0.01}


class FaultProxy:
    """Proxy for one server; use as a context manager.

    `faults` are shares of the requests by kind; `next` holds the kinds for the next requests in
    order ("" for none), which come first; `then` is the kind for all requests after these, unless
    it is "". `counts` counts what was injected.
    """

    def __init__(self, server: str, faults: dict[str, float] | None = None, seed: int = 0) -> None:
        self.target = urlsplit(server)
        self.faults = FAULTS if faults is None else faults
        self.next: list[str] = []
        self.then = ""
        self.counts: Counter[str] = Counter()
        self._random, self._lock = random.Random(seed), threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def choose(self) -> str:
        """Return the fault of the next request; "" for none."""
        with self._lock:
            if self.next:
                kind = self.next.pop(0)
            elif self.then:
                kind = self.then
            else:
                kinds, shares = ["", *self.faults], list(self.faults.values())
                kind = self._random.choices(kinds, [1 - sum(shares), *shares])[0]
            self.counts[kind] += 1
        return kind


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_request(self) -> None:
        body = self._body()
        kind = self.proxy.choose()
        if kind == "unavailable":
            self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        if kind == "reset":
            self._reset()
            return
        if kind == "stall":
            time.sleep(STALL_S)
        status, headers, data = self._forward(body)
        if kind == "lost":
            self._reset()
        else:
            self._answer(status, headers, data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        target = self.proxy.target
        connection = HTTPConnection(str(target.hostname), target.port, timeout=60)
        try:
            # Unchanged, with the name of the host: it is part of the signature.
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            headers = {name: value for name, value in answer.getheaders()}
            return answer.status, headers, answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _reset(self) -> None:
        """Close the connection so that the client gets a reset, not an end of the stream."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, *arguments: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, ValueError, OSError):
            self.close_connection = True  # the client or the fault closed it

    def finish(self) -> None:
        try:
            super().finish()
        except (ConnectionError, ValueError, OSError):
            pass
