"""The dashboard behind a real nginx: TLS, a prefix, and the configuration of the documentation."""

import json
import os
import ssl

import pytest
from helpers.dashboards import served
from helpers.event_loops import run_in_thread
from helpers.nginx import free_port, nginx, program
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from benchkit.store.store import Store
from validation.dashboard_server import READY, brush, sees

HOST = "bench.example.org"


@pytest.fixture(scope="module")
def site(tmp_path_factory, a_run):
    """Return the address of a dashboard behind nginx, with a login."""
    if program() is None:
        if os.environ.get("CI"):
            pytest.fail("nginx is not installed: apt-get install nginx-light")
        pytest.skip("nginx is not installed")
    folder = tmp_path_factory.mktemp("proxy")
    store = Store(folder / "store")
    store.add(a_run)
    (folder / "users.json").write_text(json.dumps({"ada": "secret", "grace": "other"}))
    port, backend = free_port(), free_port()
    options = ["--prefix", "bench", "--use-xheaders"]
    # Port 443 is not in the addresses of browsers, and needs no mention.
    for origin in (f"{HOST}:{port}", HOST):
        options += ["--allow-websocket-origin", origin]
    options += ["--basic-auth", str(folder / "users.json"), "--cookie-secret", "s" * 32]
    with served(store.path, *options, port=backend) as url, nginx(folder / "nginx", port, backend):
        assert url == f"http://127.0.0.1:{backend}/bench/"
        yield f"https://{HOST}:{port}/bench/"


@pytest.fixture
def visitor(browser, chromium, site):
    """Return a function that makes a page of another visitor, for whom the host is this machine."""
    arguments = ["--no-sandbox", "--disable-gpu", f"--host-resolver-rules=MAP {HOST} 127.0.0.1"]
    other = browser.browser_type.launch(executable_path=chromium, args=arguments)

    def new_page():
        page = other.new_context(ignore_https_errors=True).new_page()
        page.set_default_timeout(90_000)  # the first page of a server, on a busy machine
        return page

    yield new_page
    other.close()


def log_in(page, user, password):
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.browser
def test_visitors_log_in_through_the_proxy_after_wrong_passwords(visitor, site, artifacts):
    mallory, ada, grace = visitor(), visitor(), visitor()
    asked, failed = [], []
    ada.on("request", lambda request: asked.append(request.url))
    ada.on("websocket", lambda socket: asked.append(socket.url.replace("wss:", "https:")))
    ada.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)

    mallory.goto(site)
    for _ in range(11):
        log_in(mallory, "ada", "guess")
        sees(mallory, "Invalid username or password")
    mallory.screenshot(path=artifacts / "proxy-login.png")
    headers = ada.goto(f"{site}?view=run").headers
    log_in(ada, "ada", "secret")
    ada.wait_for_function(READY)
    grace.goto(f"{site}login")  # without the address of another page to return to
    log_in(grace, "grace", "other")
    grace.wait_for_function(READY)

    assert grace.url == site
    brush(ada, "Where was the cluster's memory?")
    ada.screenshot(path=artifacts / "proxy-run.png")
    ada.get_by_role("link", name="Runs", exact=True).click()
    ada.wait_for_url(f"{site}?view=runs")
    sees(ada, "tests.sum")
    assert failed == []
    assert any(url.startswith(f"{site}ws") for url in asked)
    assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []
    cookies = {cookie["name"]: cookie for cookie in ada.context.cookies()}
    assert cookies["user"]["httpOnly"]
    assert all(cookie["secure"] and cookie["sameSite"] == "Lax" for cookie in cookies.values())
    assert "frame-ancestors 'self'" in headers["content-security-policy"]
    assert (headers["x-frame-options"], headers["x-content-type-options"]) == (
        "SAMEORIGIN", "nosniff",
    )  # fmt: skip


def websocket_status(site, **headers):
    """Return the status of a request for a websocket, in which Host and Origin are given."""
    port = site.rpartition(":")[2].partition("/")[0]
    request = HTTPRequest(
        f"wss://127.0.0.1:{port}/bench/ws",
        headers=headers, validate_cert=False, ssl_options=ssl._create_unverified_context(),
    )  # fmt: skip

    async def connect():
        try:
            await websocket_connect(request, subprotocols=["bokeh", "token"])
        except HTTPClientError as error:
            return error.code
        return 101

    return run_in_thread(connect())


@pytest.mark.slow
def test_proxy_passes_no_foreign_host(site):
    evil = "evil.example.org"

    assert websocket_status(site, Host=evil, Origin=f"https://{evil}") == 421
    assert websocket_status(site, Host=HOST, Origin=f"https://{evil}") == 403
