"""A git server over HTTP that asks for a login, as GitHub does: git's own program behind it."""

import base64
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class GitServer(ThreadingHTTPServer):
    """Serves the repositories below a folder to those who send the token."""

    def __init__(self, folder: Path, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.token = folder, token
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def create(self, name: str) -> str:
        """Make an empty repository; return its address."""
        words = ["git", "init", "-q", "--bare", name]
        subprocess.run(words, cwd=self.folder, check=True)
        # Without this, only a web server that says who its user is may push.
        words = ["git", "config", "http.receivepack", "true"]
        subprocess.run(words, cwd=self.folder / name, check=True)
        return f"{self.url}/{name}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        login = base64.b64encode(f"x-access-token:{self.server.token}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {login}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        where = urlsplit(self.path)
        variables = {
            "GIT_PROJECT_ROOT": str(self.server.folder), "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command, "PATH_INFO": where.path, "QUERY_STRING": where.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "PATH": os.environ["PATH"],
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "REMOTE_ADDR": "127.0.0.1",
        }  # fmt: skip
        body = self._body()
        done = subprocess.run(
            ["git", "http-backend"],
            input=body, env={**variables, "CONTENT_LENGTH": str(len(body))}, capture_output=True,
        )  # fmt: skip
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, *words: object) -> None:
        pass
