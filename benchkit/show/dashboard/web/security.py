"""Security headers of all answers, and the host names that the server accepts.

A foreign web page can resolve its host name to the address of this machine (DNS rebinding);
requests of its scripts then look like requests of the dashboard's own pages. Tornado accepts such
connections without checking the allowed origins, so the Host header is checked first.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from fnmatch import fnmatch
from typing import Any

import psutil
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import Application, ErrorHandler, OutputTransform

#: Bokeh evaluates the callbacks of pages, which are strings, and loads modules that a page has as
#: text (blob:), so scripts of the page are permitted. Everything else comes from this server, and
#: no page of another site may contain a page of this one.
_POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "frame-ancestors 'self'",
    ]
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Listen on all addresses of this machine.
_ALL_ADDRESSES = ("0.0.0.0", "::")
#: HTTP status: this server is not responsible for the requested host (RFC 9110, 15.5.20).
_MISDIRECTED = 421


class SecurityHeaders(OutputTransform):
    """Add the headers to an answer; for `Application.add_transform`."""

    def __init__(self, request: HTTPServerRequest) -> None:
        self._is_https = request.protocol == "https"

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Return status, headers and chunk of the answer."""
        protected = _Headers(self._is_https)
        for name, value in [*headers.get_all(), *_HEADERS.items()]:
            protected.add(name, value)
        return status_code, protected, chunk


class _Headers(HTTPHeaders):
    """Headers whose cookies are sent to this site only: Tornado adds cookies last."""

    def __init__(self, is_https: bool = False) -> None:
        super().__init__()
        self._flags = "; SameSite=Lax" + ("; Secure" if is_https else "")

    def add(self, name: str, value: str, **options: Any) -> None:
        if name.lower() == "set-cookie" and "samesite" not in value.lower():
            value += self._flags
        super().add(name, value, **options)


def host_of(origin: str) -> str:
    """Return the host of an origin or of a Host header, without the port.

    Examples
    --------
    >>> host_of("bench.example.org:5006"), host_of("[::1]:80"), host_of("localhost")
    ('bench.example.org', '::1', 'localhost')
    """
    is_bare = origin.count(":") > 1 and not origin.startswith("[")  # an IPv6 address without a port
    head, _, port = origin.rpartition(":")
    return (head if port.isdigit() and not is_bare else origin).strip("[]").lower()


def own_names(address: str) -> list[str]:
    """Return the valid host names of a server."""
    # returned: Names and addresses, sorted, in lower case.
    names = {address, "localhost"}
    if address in _ALL_ADDRESSES:
        names = {"localhost", socket.gethostname(), socket.getfqdn()}
        for addresses in psutil.net_if_addrs().values():
            names |= {
                entry.address.partition("%")[0]
                for entry in addresses
                if entry.family in (socket.AF_INET, socket.AF_INET6)
            }
    return sorted(name.lower() for name in names if name)


def protect(application: Application, address: str, origins: Iterable[str]) -> None:
    """Make a Tornado application send security headers, and reject unknown Host headers."""
    trusted = [*own_names(address), *map(host_of, origins)]
    application.add_transform(SecurityHeaders)
    find_handler = application.find_handler

    def find_handler_or_reject(request: HTTPServerRequest, **options: Any) -> Any:
        host = host_of(request.host)
        if any(fnmatch(host, name) for name in trusted):
            return find_handler(request, **options)
        return application.get_handler_delegate(
            request, ErrorHandler, {"status_code": _MISDIRECTED}
        )

    application.find_handler = find_handler_or_reject  # type: ignore[method-assign]
