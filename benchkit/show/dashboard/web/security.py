"""Security headers of all answers."""

from __future__ import annotations

from typing import Any

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform

__all__ = ["SecurityHeaders"]

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
