"""Record Prometheus metrics of a run: read from a server after the run.

The server is read when the clock is off, each request has a timeout, and errors become lines of the
capture errors of the run. Responses are stored unchanged; `benchkit.store.build.prometheus` parses
them.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from benchkit.measure.capture_client import Observer
from benchkit.measure.deadline import call_with_timeout
from benchkit.measure.errors import UsageError, error_summary
from benchkit.measure.prometheus.http import Endpoint, HttpError, find_endpoints, without_login
from benchkit.measure.prometheus.query import read_range, selector_of
from benchkit.measure.recording import RecordingWriter

VARIABLE = "BENCHKIT_PROMETHEUS"
MATCH_VARIABLE = "BENCHKIT_PROMETHEUS_MATCH"
#: Limit in s for all requests to a server together.
SERVER_TIMEOUT_S = 40.0


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

    def add_error(text: str) -> None:
        line = f"prometheus: {text}"
        if line not in observer.errors:
            observer.errors.append(line)

    session = _ServerSession(client, writer, observer, source)
    with _report_errors(add_error):
        session.begin()
    try:
        yield
    finally:
        with _report_errors(add_error):
            session.end()


@contextmanager
def _report_errors(add_error: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except HttpError as error:
        add_error(str(error))
    except Exception as error:
        add_error(error_summary(error)[:300])


class _ServerSession:
    """Read a server when the clock is off."""

    def __init__(
        self, client: Any, writer: RecordingWriter, observer: Observer, source: Prometheus
    ) -> None:
        self.client, self.writer, self.observer = client, writer, observer
        self.source = source
        self.endpoints: dict[str, Endpoint] = {}

    def begin(self) -> None:
        self._find_endpoints()

    def end(self) -> None:
        if self.client.status == "running":
            with suppress(Exception):  # the endpoints were found at the start, too
                self._find_endpoints()
        observer, source = self.observer, self.source
        if not (observer.t_on < observer.t_off):
            return  # the clock never ran
        if not self.endpoints and not source.match:
            raise HttpError("no process of the cluster serves HTTP, so none can be scraped")
        selector = selector_of(self.endpoints, source.match)
        ahead = observer.clock_ahead
        start, stop = observer.t_on - ahead, observer.t_off - ahead
        errors: list[HttpError] = []

        def read() -> dict[str, Any] | None:
            try:
                return read_range(source.url, selector, start, stop)
            except HttpError as error:
                errors.append(error)
                return None

        response = call_with_timeout(read, SERVER_TIMEOUT_S)
        server = without_login(source.url)
        if not response or "error" in response:
            timeout = f"no response in {SERVER_TIMEOUT_S:g} s"
            reason = errors[0] if errors else (response or {}).get("error", timeout)
            raise HttpError(f"{server}: {reason}")
        self.writer.segment(
            {
                "endpoints": [endpoint.to_dict() for endpoint in self.endpoints.values()],
                "prometheus": {
                    **response,
                    # Scheduler clock minus server clock.
                    "ahead": ahead - response["ahead"],
                    "server": server,
                    "selector": selector,
                },
            }
        )

    def _find_endpoints(self) -> None:
        for endpoint in find_endpoints(self.client):
            if endpoint.instance:
                self.endpoints[endpoint.instance] = endpoint
