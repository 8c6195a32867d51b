"""Security headers of all answers, and flags of cookies."""

import http.client
import socket
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from helpers.dashboards import served
from helpers.event_loops import run_in_thread
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import HTTPHeaders
from tornado.websocket import websocket_connect

from benchkit.show.dashboard.server import SecurityHeaders, host_of, own_names
from benchkit.store.store import Store


@pytest.mark.parametrize(
    ("protocol", "flags"), [("http", "; SameSite=Lax"), ("https", "; SameSite=Lax; Secure")]
)
def test_cookies_are_for_this_site(protocol, flags):
    transform = SecurityHeaders(SimpleNamespace(protocol=protocol))
    status, headers, chunk = transform.transform_first_chunk(
        200, HTTPHeaders({"Content-Type": "text/html"}), b"x", True
    )
    headers.add("Set-Cookie", "user=1; Path=/")

    assert (status, chunk, headers["Content-Type"]) == (200, b"x", "text/html")
    assert headers["Set-Cookie"] == f"user=1; Path=/{flags}"
    assert "object-src 'none'" in headers["Content-Security-Policy"]


@pytest.fixture(scope="module", params=[(), ("--num-procs", "2")], ids=["one", "two"])
def site(request, tmp_path_factory, a_run):
    store = Store(tmp_path_factory.mktemp("hosts") / "store")
    store.add(a_run)
    allowed = ("--allow-websocket-origin", "bench.example.org:5006")
    with served(store.path, *request.param, *allowed) as url:
        yield urlsplit(url)


def status(site, host):
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    try:
        connection.request("GET", "/?view=nothing", headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1:{port}", 200),
        ("LocalHost:{port}", 200),
        ("bench.example.org", 200),
        ("bench.example.org:443", 200),
        ("evil.example.org:{port}", 421),
        ("bench.example.org.evil.example", 421),
    ],
)
def test_unknown_host_is_rejected(site, host, code):
    assert status(site, host.format(port=site.port)) == code


@pytest.mark.slow
def test_rebound_host_gets_no_websocket(site):
    """Reject DNS rebinding: Host and Origin agree, so Tornado accepts the page as its own."""
    name = f"evil.example.org:{site.port}"
    request = HTTPRequest(
        f"ws://127.0.0.1:{site.port}/ws", headers={"Host": name, "Origin": f"http://{name}"}
    )

    async def connect():
        await websocket_connect(request, subprotocols=["bokeh", "token"])

    with pytest.raises(HTTPClientError) as refused:
        run_in_thread(connect())
    assert refused.value.code == 421


def test_own_names_of_all_addresses():
    names = own_names("0.0.0.0")

    assert {"localhost", "127.0.0.1", socket.gethostname().lower()} <= set(names)
    assert "0.0.0.0" not in names
    assert own_names("::1") == ["::1", "localhost"]


@pytest.mark.parametrize(
    ("origin", "host"), [("[::1]:5006", "::1"), ("::1", "::1"), ("A.example:80", "a.example")]
)
def test_host_of_removes_port(origin, host):
    assert host_of(origin) == host
