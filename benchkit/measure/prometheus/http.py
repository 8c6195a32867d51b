"""Where scheduler and workers serve HTTP, and how anything is asked over it.

Every request has an end: a time limit for each step, and a limit to the size of an answer.
Standard library and distributed only.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass
from typing import Any

import dask
from distributed.comm import get_address_host

__all__ = ["Endpoint", "HttpError", "ask", "find_endpoints", "without_login"]

ASK_CLUSTER_S = 10.0
#: An answer that is longer is not read to its end: the process that measures must not drown in it.
MOST_BYTES = 512 * 2**20


class HttpError(Exception):
    """A request that was not answered as it should be; the message is one line.

    `body` is what the answer said, if there was one.
    """

    def __init__(self, message: str, body: bytes = b"") -> None:
        self.body = body
        super().__init__(message)


@dataclass(frozen=True)
class Endpoint:
    """Where one process of the cluster serves HTTP.

    Attributes
    ----------
    instance : str
        ``host:port``, which is what Prometheus calls it; empty if the process serves none.
    address, name, role : str
        Dask's address and name of the process, and whether it is scheduler or worker.
    """

    instance: str
    address: str
    name: str
    role: str

    @property
    def url(self) -> str:
        """Address of its metrics."""
        secure = dask.config.get("distributed.scheduler.dashboard.tls.cert", None)
        return f"{'https' if secure else 'http'}://{self.instance}/metrics"

    def to_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return asdict(self)


def find_endpoints(client: Any) -> list[Endpoint]:
    """Return the endpoints of a client's scheduler and workers, from any thread but its loop's.

    Raises
    ------
    Exception
        The scheduler does not answer in time.
    """
    future = asyncio.run_coroutine_threadsafe(
        asyncio.wait_for(client.scheduler.identity(), ASK_CLUSTER_S), client.loop.asyncio_loop
    )
    known = future.result(ASK_CLUSTER_S + 1)
    found = [_endpoint(known["address"], known.get("services"), "scheduler", "scheduler")]
    for address, worker in known["workers"].items():
        found.append(_endpoint(address, worker.get("services"), str(worker["name"]), "worker"))
    return found


def _endpoint(address: str, services: Any, name: str, role: str) -> Endpoint:
    port = (services or {}).get("dashboard")
    host = get_address_host(address)
    instance = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Endpoint(instance if port else "", address, name, role)


def ask(
    url: str, *, timeout_s: float, form: dict[str, str] | None = None, direct: bool = False
) -> bytes:
    """Ask over HTTP and return the answer.

    Parameters
    ----------
    url : str
        May hold ``user:password@``; it is sent as basic authentication and never told.
    timeout_s : float
        Longest silence, in s.
    form : dict, optional
        Posted if given.
    direct : bool, default False
        Whether to go past proxies that the variables of the process name.

    Raises
    ------
    HttpError
        No answer, not in time, or one that says no.
    """
    address, login = _split_login(url)
    data = urllib.parse.urlencode(form).encode() if form is not None else None
    request = urllib.request.Request(address, data)
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    handlers: list[Any] = [urllib.request.ProxyHandler({})] if direct else []
    authority = dask.config.get("distributed.scheduler.dashboard.tls.ca-file", None)
    try:
        if direct and authority:
            context = ssl.create_default_context(cafile=authority)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as answer:
            content = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise HttpError(f"HTTP {error.code} {error.reason}", error.read(10_000)) from error
    except TimeoutError as error:
        raise HttpError(f"no answer within {timeout_s:g} s") from error
    except urllib.error.URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise HttpError(str(reason) or "no answer") from error
    except Exception as error:  # what speaks no HTTP has many ways to say so
        raise HttpError(f"{type(error).__name__}: {error}".rstrip(": ")[:200]) from error
    if len(content) > MOST_BYTES:
        raise HttpError(f"an answer of more than {MOST_BYTES >> 20} MiB")
    return content


def _split_login(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=host).geturl(), urllib.parse.unquote(login) if at else ""


def without_login(url: str) -> str:
    """Return an address that may be told.

    Examples
    --------
    >>> without_login("https://me:secret@prometheus.example/path")
    'https://prometheus.example/path'
    """
    return _split_login(url)[0]
