"""A real nginx with the configuration of the documentation; ports and paths are replaced."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "dashboard.md"
#: What nginx needs around a file of `conf.d`, to run in a folder as any user.
_MAIN = """user root;
daemon off;
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/bench.conf;
}}
"""


def program() -> str | None:
    """Return the path of nginx, which Debian does not put into PATH of users."""
    return shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def nginx(folder: Path, port: int, backend: int) -> Iterator[None]:
    """Serve TLS on a port, before the dashboard on another."""
    folder.mkdir()
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=bench.example.org".split()
    files = ["-keyout", "bench.example.org.key", "-out", "bench.example.org.pem"]
    subprocess.run([*words, *files], cwd=folder, check=True, capture_output=True)
    (block,) = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for old, new in [("listen 443", f"listen 127.0.0.1:{port}"), ("/etc/nginx", str(folder)),
                     ("127.0.0.1:5006", f"127.0.0.1:{backend}")]:  # fmt: skip
        assert block.count(old) in (1, 2), old
        block = block.replace(old, new)
    (folder / "bench.conf").write_text(block)
    (folder / "main.conf").write_text(_MAIN.format(folder=folder))
    words = [program(), "-c", folder / "main.conf", "-e", folder / "errors"]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (folder / "errors").read_text()
            assert time.monotonic() < until, "nginx does not listen"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(120)
