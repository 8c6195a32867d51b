"""Security headers of all answers, and flags of cookies."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tornado.httputil import HTTPHeaders

from benchkit.show.dashboard.web.security import SecurityHeaders


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
