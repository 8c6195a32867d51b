"""Find the HTTP endpoints of scheduler and workers, and send HTTP requests.

Every request has a time limit for each step and a limit for the size of the response.
Standard library and distributed only.
"""

from __future__ import annotations

import asyncio
import base64
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass
from typing import Any

from distributed.comm.addressing import get_address_host

#: The scheduler replies in milliseconds, unless its event loop is blocked.
IDENTITY_TIMEOUT_S = 10.0
#: Largest response in B, which limits the memory of the measuring process.
MAX_RESPONSE_BYTES = 512 * 2**20


class HttpError(Exception):
    """A request failed."""

    def __init__(self, message: str, body: bytes = b"") -> None:
        self.body = body
        super().__init__(message)


@dataclass(frozen=True)
class Endpoint:
    """HTTP endpoint of one process of the cluster."""

    # `host:port`, the instance label of Prometheus; empty if the process serves no HTTP.
    instance: str
    address: str  # Dask address of the process
    name: str  # Dask name of the worker
    role: str  # Kind of the process

    def to_dict(self) -> dict[str, str]:
        """Return the attributes as a dict."""
        return asdict(self)


def find_endpoints(client: Any) -> list[Endpoint]:
    """Return the endpoints of scheduler and workers; must not run in the client's event loop."""
    future = asyncio.run_coroutine_threadsafe(
        asyncio.wait_for(client.scheduler.identity(), IDENTITY_TIMEOUT_S), client.loop.asyncio_loop
    )
    identity = future.result(IDENTITY_TIMEOUT_S + 1)
    endpoints = [_endpoint(identity["address"], identity.get("services"), "scheduler", "scheduler")]
    for address, worker in identity["workers"].items():
        endpoints.append(_endpoint(address, worker.get("services"), str(worker["name"]), "worker"))
    return endpoints


def _endpoint(address: str, services: Any, name: str, role: str) -> Endpoint:
    port = (services or {}).get("dashboard")
    host = get_address_host(address)
    instance = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Endpoint(instance if port else "", address, name, role)


def request(url: str, *, timeout_s: float, form: dict[str, str] | None = None) -> bytes:
    """Send an HTTP request and return the content of the response."""
    address, login = _split_login(url)
    data = urllib.parse.urlencode(form).encode() if form is not None else None
    http_request = urllib.request.Request(address, data)
    if login:
        http_request.add_header(
            "Authorization", f"Basic {base64.b64encode(login.encode()).decode()}"
        )
    try:
        with urllib.request.urlopen(http_request, timeout=timeout_s) as response:
            content: bytes = response.read(MAX_RESPONSE_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise HttpError(f"HTTP {error.code} {error.reason}", error.read(10_000)) from error
    except TimeoutError as error:
        raise HttpError(f"no response within {timeout_s:g} s") from error
    except urllib.error.URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise HttpError(str(reason) or "no response") from error
    except Exception as error:  # a server without HTTP causes many types of errors
        raise HttpError(f"{type(error).__name__}: {error}".rstrip(": ")[:200]) from error
    if len(content) > MAX_RESPONSE_BYTES:
        raise HttpError(f"the response is larger than {MAX_RESPONSE_BYTES >> 20} MiB")
    return content


def _split_login(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=host).geturl(), urllib.parse.unquote(login) if at else ""


def without_login(url: str) -> str:
    """Return a URL without user and password.

    Examples
    --------
    >>> without_login("https://me:secret@prometheus.example/path")
    'https://prometheus.example/path'
    """
    return _split_login(url)[0]
