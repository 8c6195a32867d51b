"""Logins with a local OAuth provider, and with a file of passwords."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from helpers.dashboards import served
from playwright.sync_api import expect
from tornado.web import decode_signed_value

from benchkit.store.store import Store
from validation.dashboard_server import READY, open_page, sees

KEY, SECRET = "a-key", "a-secret"
ADA = "ada@example.org"


class Provider(BaseHTTPRequestHandler):
    """Authenticates as the server's `account`, without asking for a password."""

    def do_GET(self):
        where, query = urlsplit(self.path), parse_qs(urlsplit(self.path).query)
        if where.path == "/authorize" and query["client_id"] == [KEY]:
            back = urlencode({"code": "a-code", "state": query["state"][0]})
            self.send_response(302)
            self.send_header("Location", f"{query['redirect_uri'][0]}?{back}")
            self.end_headers()
        elif where.path == "/user" and self.headers["Authorization"] == "Bearer a-token":
            self._answer({"email": self.server.account, "name": ADA})
        else:
            self.send_error(400)

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if (form["code"], form["client_secret"]) == (["a-code"], [SECRET]):
            self._answer({"access_token": "a-token"})
        else:
            self.send_error(401)

    def _answer(self, content):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def provider():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def site(provider, tmp_path_factory, a_run):
    store = Store(tmp_path_factory.mktemp("login") / "store")
    store.add(a_run)
    options = ["--oauth-provider", "generic", "--oauth-key", KEY, "--oauth-secret", SECRET]
    options += ["--cookie-secret", "c", "--oauth-user", ADA, "--allow-marks"]
    options += ["--oauth-encryption-key", base64.urlsafe_b64encode(bytes(32)).decode()]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("authorize", "token", "user"):
            url = f"http://127.0.0.1:{provider.server_port}/{name}"
            patch.setenv(f"PANEL_OAUTH_{name.upper()}_URL", url)
        with served(store.path, *options) as url:
            yield url


@pytest.mark.browser
def test_permitted_account_logs_in_and_signs_marks(browser, provider, site):
    provider.account = ADA
    context = browser.new_context()
    page = context.new_page()

    open_page(page, f"{site}?view=run")

    sees(page, "tests.sum")
    expect(page.get_by_label("Author")).to_have_value(ADA)
    cookies = {cookie["name"]: cookie["value"] for cookie in context.cookies()}
    token = decode_signed_value("c", "access_token", cookies["access_token"].strip('"'))
    assert token.startswith(b"gAAAA")  # Fernet: the provider's token is not readable
    context.close()


@pytest.mark.browser
def test_other_account_is_rejected(browser, provider, site):
    provider.account = "mallory@example.org"  # an account whose name is ada
    context = browser.new_context()
    page = context.new_page()

    page.goto(f"{site}?view=run")

    sees(page, "not authorized")
    assert "tests.sum" not in page.content()
    context.close()


@pytest.mark.browser
def test_page_and_websocket_need_login(browser, site):
    page = browser.new_context().new_page()
    answer = page.request.get(f"{site}?view=run", max_redirects=0)
    assert answer.status == 302
    assert "/login" in answer.headers["location"]
    assert page.request.get(f"{site}ws", max_redirects=0).status in (302, 400, 403)
    page.context.close()


@pytest.mark.browser
def test_password_login_page_works_offline(page, running_store, tmp_path):
    (tmp_path / "users.json").write_text(json.dumps({"ada": "secret"}))
    options = ("--basic-auth", str(tmp_path / "users.json"), "--cookie-secret", "s" * 32)
    with served(running_store.path, *options, page=page) as url:
        page.goto(url)  # the fixture rejects requests to other machines
        page.get_by_label("User").fill("ada")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        sees(page, "Invalid username or password")
        page.get_by_label("User").fill("ada")
        page.get_by_label("Password").fill("secret")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_function(READY)
        sees(page, "tests.sum")
