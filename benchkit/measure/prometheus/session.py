"""Keep what Prometheus knows of a run: read from a server afterwards, or scraped meanwhile.

Never in the way: the server is asked when the clock is off, each request has an end, and what goes
wrong is a line among the run's capture errors. What was said is written down as it is;
`benchkit.store.build.prometheus` makes variables of it.
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
from benchkit.measure.errors import UsageError
from benchkit.measure.prometheus.http import Endpoint, HttpError, find_endpoints, without_login
from benchkit.measure.prometheus.query import read_range, selector_of
from benchkit.measure.prometheus.scraper import Scraper
from benchkit.measure.recording import RecordingWriter

__all__ = ["MATCH_VARIABLE", "SCRAPE", "VARIABLE", "Prometheus", "keep_prometheus"]

VARIABLE, MATCH_VARIABLE = "BENCHKIT_PROMETHEUS", "BENCHKIT_PROMETHEUS_MATCH"
#: In place of a server's address: ask scheduler and workers themselves.
SCRAPE = "scrape"
#: For all requests to a server together.
PATIENCE_S = 40.0


@dataclass(frozen=True)
class Prometheus:
    """Where a run's metrics come from.

    Parameters
    ----------
    url : str
        Address of a Prometheus server, ``scrape``, or empty for none.
    match : str, default ""
        Selector of the cluster's series on the server, such as ``{job="dask"}``; by default
        those of the instances under which its scheduler and workers serve HTTP.

    Raises
    ------
    UsageError
        Neither an address nor ``scrape``; or no selector.
    """

    url: str = ""
    match: str = ""

    def __post_init__(self) -> None:
        if self.url not in ("", SCRAPE):
            try:
                parts = urllib.parse.urlsplit(self.url)
                good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            except ValueError:
                good = False
            if not good:
                raise UsageError(
                    f"prometheus {_told(self.url)!r}: must be the address of a server, such as "
                    f"http://prometheus:9090, or {SCRAPE!r}"
                )
        if self.match and not re.fullmatch(r"\s*\{.*\w.*\}\s*", self.match, re.DOTALL):
            raise UsageError(
                f'prometheus match {self.match!r}: must be a selector, such as {{job="dask"}}'
            )

    @classmethod
    def chosen(cls, url: str | None = None, match: str | None = None) -> Prometheus:
        """Return what is meant: these, else ``$BENCHKIT_PROMETHEUS`` and its ``_MATCH``."""
        if url is None:
            url = os.environ.get(VARIABLE, "")
        if match is None:
            match = os.environ.get(MATCH_VARIABLE, "")
        return cls(url.strip(), match.strip())


def _told(url: str) -> str:
    try:
        return without_login(url)
    except ValueError:
        return url.rpartition("@")[2]


@contextmanager
def keep_prometheus(
    client: Any, source: Prometheus, observer: Observer, writer: RecordingWriter
) -> Iterator[None]:
    """Keep the metrics of what runs inside; what goes wrong is noted and stops nothing.

    Scraping resets Dask's own maximum of the tick duration, as every scraper does: where another
    one looks at the same cluster, each sees the maximum since either looked.

    Parameters
    ----------
    client : Client
        Of the cluster.
    source : Prometheus
        Where they come from.
    observer : Observer
        Of the run: knows when the clock was on, and takes the notes.
    writer : RecordingWriter
        Where they go.
    """
    if not source.url:
        yield
        return

    def note(text: str) -> None:
        line = f"prometheus: {text}"
        if line not in observer.errors:
            observer.errors.append(line)

    kept: _Scraped | _Read
    if source.url == SCRAPE:
        kept = _Scraped(client, writer, observer, note)
    else:
        kept = _Read(client, writer, observer, source)
    with _noted(note):
        kept.begin()
    try:
        yield
    finally:
        with _noted(note):
            kept.end()


@contextmanager
def _noted(note: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except HttpError as error:
        note(str(error))
    except Exception as error:
        note(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".rstrip(": ")[:300])


class _Scraped:
    """Scheduler and workers are asked themselves."""

    def __init__(
        self, client: Any, writer: RecordingWriter, observer: Observer, note: Callable[[str], None]
    ) -> None:
        self.writer, self.observer = writer, observer
        self.scraper = Scraper(client, writer, note)

    def begin(self) -> None:
        self.scraper.start()

    def end(self) -> None:
        self.scraper.stop()
        self.writer.segment({"scrape_clock": {"ahead": self.observer.clock_ahead}})


class _Read:
    """A server is asked when the clock is off."""

    def __init__(
        self, client: Any, writer: RecordingWriter, observer: Observer, source: Prometheus
    ) -> None:
        self.client, self.writer, self.observer = client, writer, observer
        self.source = source
        self.found: dict[str, Endpoint] = {}

    def begin(self) -> None:
        self._look()

    def end(self) -> None:
        if self.client.status == "running":
            with suppress(Exception):  # a scheduler that is gone had its endpoints told before
                self._look()
        observer, source = self.observer, self.source
        if not (observer.t_on < observer.t_off):
            return  # the clock never ran
        if not self.found and not source.match:
            raise HttpError("no process of the cluster serves HTTP, so none can be scraped")
        selector = selector_of(self.found, source.match)
        ahead = observer.clock_ahead
        start, stop = observer.t_on - ahead, observer.t_off - ahead
        box: list[HttpError] = []

        def read() -> dict[str, Any] | None:
            try:
                return read_range(source.url, selector, start, stop)
            except HttpError as error:
                box.append(error)
                return None

        answer = call_with_timeout(read, PATIENCE_S)
        server = without_login(source.url)
        if not answer or "trouble" in answer:
            why = box[0] if box else (answer or {}).get("trouble", f"no answer in {PATIENCE_S:g} s")
            raise HttpError(f"{server}: {why}")
        self.writer.segment(
            {
                "endpoints": [end.to_dict() for end in self.found.values()],
                "prometheus": {
                    **answer,
                    # From the server's clock to the scheduler's.
                    "ahead": ahead - answer["ahead"],
                    "server": server,
                    "selector": selector,
                },
            }
        )

    def _look(self) -> None:
        for end in find_endpoints(self.client):
            if end.instance:
                self.found[end.instance] = end
