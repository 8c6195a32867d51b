"""HTTP server that accepts messages of webhooks, refuses them, or does not answer."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WebhookServer:
    """Bodies of the requests, and the statuses to answer; the last status is repeated."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.content_types: list[str] = []
        self.statuses = [200]
        self.silent = threading.Event()
        self.released = threading.Event()
        self.url = ""


@contextmanager
def webhook_server() -> Iterator[WebhookServer]:
    """Return a server whose path is a secret; it ends with the context."""
    state = WebhookServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.messages.append(json.loads(body))
            state.content_types.append(self.headers["Content-Type"])
            if state.silent.is_set():
                state.released.wait(60)
                return
            status = state.statuses.pop(0) if len(state.statuses) > 1 else state.statuses[0]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", state.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/hooks/c0ffee-secret-path"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
