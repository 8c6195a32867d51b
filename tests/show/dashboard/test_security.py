"""Logins that are refused, and flags of cookies."""

from __future__ import annotations

import pytest
from tornado.httputil import HTTPHeaders, HTTPServerRequest

from benchkit.show.dashboard.web.security import (
    MOST_LOGINS,
    SECONDS,
    LoginGuard,
    SecurityHeaders,
)


class Connection:
    def __init__(self, remote_ip, protocol="http"):
        self.context = self
        self.remote_ip, self.protocol = remote_ip, protocol


def request(method="POST", uri="/login", ip="10.0.0.1", protocol="http", **headers):
    headers = {"Host": "bench:5006", "Origin": "http://bench:5006", **headers}
    connection = Connection(ip, protocol)
    return HTTPServerRequest(method, uri, headers=HTTPHeaders(headers), connection=connection)


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def guard(now):
    return LoginGuard(["bench", "*.example.org"], clock=lambda: now[0])


def test_guesses_are_limited_per_address_and_time(guard, now):
    assert [guard.refusal(request()) for _ in range(MOST_LOGINS + 1)] == [None] * MOST_LOGINS + [
        429
    ]
    assert guard.refusal(request(ip="10.0.0.2")) is None
    now[0] = SECONDS + 1
    assert guard.refusal(request()) is None


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Origin": "https://a.example.org"}, None),
        ({"Origin": "https://example.org.evil"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "", "Referer": "http://bench:5006/login"}, None),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, None),
        ({"uri": "/prefix/login?next=/"}, None),
        ({"method": "GET", "Origin": "https://evil"}, None),
        ({"uri": "/other", "Origin": "https://evil"}, None),
    ],
)
def test_logins_come_from_pages_of_this_site(guard, changes, status):
    assert guard.refusal(request(**changes)) == status


@pytest.mark.parametrize(
    ("protocol", "flags"), [("http", "; SameSite=Lax"), ("https", "; SameSite=Lax; Secure")]
)
def test_cookies_are_for_this_site(protocol, flags):
    transform = SecurityHeaders(request(protocol=protocol))
    status, headers, chunk = transform.transform_first_chunk(
        200, HTTPHeaders({"Content-Type": "text/html"}), b"x", True
    )
    headers.add("Set-Cookie", "user=1; Path=/")

    assert (status, chunk, headers["Content-Type"]) == (200, b"x", "text/html")
    assert headers["Set-Cookie"] == f"user=1; Path=/{flags}"
    assert "object-src 'none'" in headers["Content-Security-Policy"]
