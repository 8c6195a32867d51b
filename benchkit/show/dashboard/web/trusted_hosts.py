"""Host names that the server accepts.

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
from tornado.httputil import HTTPServerRequest
from tornado.web import Application, ErrorHandler

from benchkit.show.dashboard.web.security import SecurityHeaders

__all__ = ["LOOPBACK", "host_of", "own_names", "protect"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Listen on all addresses of this machine.
_ALL_ADDRESSES = ("0.0.0.0", "::")
#: HTTP status: this server is not responsible for the requested host (RFC 9110, 15.5.20).
_MISDIRECTED = 421


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
