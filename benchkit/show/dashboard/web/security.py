"""Security headers of all answers, and limits of the login form."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from typing import Any
from urllib.parse import urlsplit

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform

__all__ = ["MOST_LOGINS", "SECONDS", "LoginGuard", "SecurityHeaders"]

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
#: Logins that one address may try in so many seconds.
MOST_LOGINS, SECONDS = 10, 60.0
#: Addresses that are remembered; the oldest are forgotten.
_MOST_ADDRESSES = 10_000
_TOO_MANY, _FORBIDDEN = 429, 403


class SecurityHeaders(OutputTransform):
    """Add the headers to an answer; for `Application.add_transform`.

    Parameters
    ----------
    request : HTTPServerRequest
        The request that is answered.
    """

    def __init__(self, request: HTTPServerRequest) -> None:
        self._is_https = request.protocol == "https"

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Return status, headers and chunk of the answer.

        Parameters
        ----------
        status_code : int
            HTTP status.
        headers : HTTPHeaders
            Headers of the handler.
        chunk : bytes
            First part of the body.
        finishing : bool
            Whether it is the last one, too.

        Returns
        -------
        tuple
            The same, with the headers of this module.
        """
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


class LoginGuard:
    """Refuse logins from pages of other sites, and guesses of passwords.

    Parameters
    ----------
    trusted : iterable of str
        Host names of this server; ``*`` matches a part of a name.
    clock : callable
        Returns seconds.
    """

    def __init__(self, trusted: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._trusted, self._clock = list(trusted), clock
        self._tries: dict[str, deque[float]] = {}

    def refusal(self, request: HTTPServerRequest) -> int | None:
        """Return the HTTP status with which to refuse a request.

        Parameters
        ----------
        request : HTTPServerRequest
            Any request.

        Returns
        -------
        int or None
            403 for a login from a page of another site, 429 after `MOST_LOGINS` in `SECONDS`;
            None for all others.
        """
        if request.method != "POST" or not request.path.rstrip("/").endswith("/login"):
            return None
        if not self._is_own_page(request):
            return _FORBIDDEN
        now = self._clock()
        tries = self._tries.pop(str(request.remote_ip), deque(maxlen=MOST_LOGINS))
        self._tries[str(request.remote_ip)] = tries  # the newest address is the last
        if len(self._tries) > _MOST_ADDRESSES:
            del self._tries[next(iter(self._tries))]
        if len(tries) == MOST_LOGINS and now - tries[0] < SECONDS:
            return _TOO_MANY
        tries.append(now)
        return None

    def _is_own_page(self, request: HTTPServerRequest) -> bool:
        """Return whether a form of this site was sent: browsers say from where."""
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = request.headers.get("Origin") or request.headers.get("Referer")
        if not origin:
            return False
        host = (urlsplit(origin).hostname or "").lower()
        return any(fnmatch(host, name) for name in self._trusted)
