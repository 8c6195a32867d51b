"""Record Prometheus metrics of a run: read from a server after the run, by its HTTP API.

The server is read when the clock is off; each request has a time limit and a limit for the size of
the response, and errors become lines of the capture errors of the run. One query reads all series,
with a step that keeps the response within the limits of the server and of a run file. Responses are
stored unchanged; `benchkit.store.build.prometheus` parses them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import re
import socket
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from distributed.comm.addressing import get_address_host
from distributed.metrics import time

from benchkit.measure.capture_client import Observer
from benchkit.measure.deadline import call_with_timeout
from benchkit.measure.errors import UsageError, error_summary
from benchkit.measure.recording import RecordingWriter

VARIABLE = "BENCHKIT_PROMETHEUS"
MATCH_VARIABLE = "BENCHKIT_PROMETHEUS_MATCH"
#: Limit in s for all requests to a server together.
SERVER_TIMEOUT_S = 40.0
#: The scheduler replies in milliseconds, unless its event loop is blocked.
IDENTITY_TIMEOUT_S = 10.0
#: Largest response in B, which limits the memory of the measuring process.
MAX_RESPONSE_BYTES = 512 * 2**20
#: Seconds between two values of a series: servers rarely collect them more often.
STEP_S = 1.0
#: Limit of the server for one series.
MAX_POINTS_PER_SERIES = 11_000
#: Limit for all series, because of the size of run files.
MAX_VALUES = 2_000_000
#: Seconds for one request: the run has ended, and the next one waits.
RESPONSE_TIMEOUT_S = 10.0
#: Largest age in s of a current value; the default of the server.
LOOKBACK_S = 300
#: Excludes the series that the client library and the server add to every process.
DASK_SERIES_ONLY = '__name__!~"python_.*|scrape_.*"'
_LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}


@dataclass(frozen=True)
class Prometheus:
    """Source of the Prometheus metrics of a run."""

    url: str = ""  # Address of a Prometheus server; empty: none
    # Selector of the cluster's series on the server, such as `{job="dask"}`; by default the
    # instances of its scheduler and workers.
    match: str = ""

    def __post_init__(self) -> None:
        if self.url:
            try:
                parts = urllib.parse.urlsplit(self.url)
                is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            except ValueError:
                is_valid = False
            if not is_valid:
                raise UsageError(
                    f"prometheus {_display_url(self.url)!r}: must be the address of a server, such "
                    "as http://prometheus:9090"
                )
        match = self.match.strip() if self.match else "{_}"
        if not (match[0] + match[-1] == "{}" and re.search(r"\w", match)):
            raise UsageError(
                f'prometheus match {self.match!r}: must be a selector, such as {{job="dask"}}'
            )

    @classmethod
    def from_environment(cls, url: str | None = None) -> Prometheus:
        """Return a source; its selector is ``$BENCHKIT_PROMETHEUS_MATCH``."""
        if url is None:
            url = os.environ.get(VARIABLE, "")
        return cls(url.strip(), os.environ.get(MATCH_VARIABLE, "").strip())


def _display_url(url: str) -> str:
    try:
        return without_login(url)
    except ValueError:
        return url.rpartition("@")[2]


@contextmanager
def record_prometheus(
    client: Any, source: Prometheus, observer: Observer, writer: RecordingWriter
) -> Iterator[None]:
    """Record the metrics of the body of a `with`; report errors, never raise them."""
    if not source.url:
        yield
        return
    endpoints: dict[str, Endpoint] = {}
    with _report_errors(observer):
        _find_instances(client, endpoints)
    try:
        yield
    finally:
        with _report_errors(observer):
            if client.status == "running":
                with suppress(Exception):  # the endpoints were found at the start, too
                    _find_instances(client, endpoints)
            if observer.t_on < observer.t_off:  # else the clock never ran
                writer.segment(_read_server(source, endpoints, observer))


@contextmanager
def _report_errors(observer: Observer) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        text = str(error) if isinstance(error, HttpError) else error_summary(error)[:300]
        if (line := f"prometheus: {text}") not in observer.errors:
            observer.errors.append(line)


def _find_instances(client: Any, endpoints: dict[str, Endpoint]) -> None:
    endpoints.update({found.instance: found for found in find_endpoints(client) if found.instance})


def _read_server(
    source: Prometheus, endpoints: dict[str, Endpoint], observer: Observer
) -> dict[str, Any]:
    """Return the entries of a recording with the series of the time in which the clock ran."""
    if not endpoints and not source.match:
        raise HttpError("no process of the cluster serves HTTP, so none can be scraped")
    selector, server = selector_of(endpoints, source.match), without_login(source.url)
    ahead = observer.clock_ahead
    start, stop = observer.t_on - ahead, observer.t_off - ahead

    def read() -> dict[str, Any]:
        try:
            return read_range(source.url, selector, start, stop)
        except HttpError as error:
            return {"error": error}

    timeout: dict[str, Any] = {"error": f"no response in {SERVER_TIMEOUT_S:g} s"}
    response = call_with_timeout(read, SERVER_TIMEOUT_S) or timeout
    if "error" in response:
        raise HttpError(f"{server}: {response['error']}")
    # Scheduler clock minus server clock.
    about = {"ahead": ahead - response["ahead"], "server": server, "selector": selector}
    return {
        "endpoints": [endpoint.to_dict() for endpoint in endpoints.values()],
        "prometheus": {**response, **about},
    }


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


def selector_of(instances: Iterable[str], match: str = "") -> str:
    """Return a PromQL selector for the series of a cluster.

    Examples
    --------
    >>> selector_of(["10.0.0.7:8787"])
    '{instance=~"10[.]0[.]0[.]7:8787",__name__!~"python_.*|scrape_.*"}'
    >>> selector_of([], '{job="dask"}')
    '{job="dask",__name__!~"python_.*|scrape_.*"}'
    """
    if match:
        return f"{match.strip().rstrip('}').rstrip(', ')},{DASK_SERIES_ONLY}}}"
    names: set[str] = set()
    for instance in instances:
        host, _, port = instance.rpartition(":")
        # A process on this machine can be scraped under several host names.
        hosts = {*_LOOPBACK, socket.gethostname()} if host in _LOOPBACK else {host}
        names |= {f"{name}:{port}" for name in hosts}
    pattern = "|".join(re.sub(r"([^\w:|-])", r"[\1]", name) for name in sorted(names))
    return f'{{instance=~"{pattern}",{DASK_SERIES_ONLY}}}'


def read_range(url: str, selector: str, start: float, stop: float) -> dict[str, Any]:
    """Return the series of a selector between two times."""
    call_time = time()
    now = float(_query(url, "query", query="time()")["result"][0])
    ahead = min(now - call_time, 0.0) + max(now - time(), 0.0)
    begin, end = start + ahead, stop + ahead
    duration = max(end - begin, 0.001)
    # Count over the complete range and the lookback before it: workers join and leave.
    window = math.ceil(duration) + LOOKBACK_S
    count = f"count(last_over_time({selector}[{window}s]))"
    counts = _query(url, "query", query=count, time=f"{end:.3f}")["result"]
    n_series = int(float(counts[0]["value"][1])) if counts else 1
    # Include start and end time, because counters are read as the difference of the two.
    n_steps = max(1, min(int(duration / STEP_S), MAX_POINTS_PER_SERIES - 1, MAX_VALUES // n_series))
    step = math.floor(1000 * duration / n_steps) / 1000  # the server rounds to ms
    begin = end - n_steps * step
    response = _request(
        url, "query_range",
        query=selector, start=f"{begin:.3f}", end=f"{end + 0.001:.3f}", step=f"{step:.3f}",
    )  # fmt: skip
    names = {series["metric"].get("__name__", "") for series in _data(response)["result"]}
    if not names:
        raise HttpError(
            f"the server has no series of {_short(selector)} at the time of the run: does it "
            "scrape scheduler and workers? --prometheus-match names series by other labels"
        )
    try:
        known = _query(url, "metadata")
    except HttpError:  # compatible servers may have no metadata; names contain the units
        known = {}
    metadata = {name: known[name][0] for name in names if known.get(name)}
    return {"answer": zlib.compress(response), "metadata": metadata, "step": step, "ahead": ahead}


def _query(url: str, endpoint: str, **form: str) -> Any:
    return _data(_request(url, endpoint, **form))


def _request(url: str, endpoint: str, **form: str) -> bytes:
    address = f"{url.rstrip('/')}/api/v1/{endpoint}"
    try:
        # POST, because the selector of 300 workers is too long for a URL.
        return request(address, timeout_s=RESPONSE_TIMEOUT_S, form=form or None)
    except HttpError as error:
        try:
            reason = json.loads(error.body)["error"]
        except (ValueError, KeyError, TypeError):
            raise error from None  # not an error in the format of Prometheus
        raise HttpError(f"the server rejected the query: {reason}"[:300]) from error


def _data(response: bytes) -> Any:
    try:
        return json.loads(response)["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise HttpError("the response is not in the format of Prometheus") from error


def _short(selector: str) -> str:
    return selector if len(selector) < 160 else f"{selector[:150]}...}}"
