"""Scrape the metrics of scheduler and workers into a recording while something runs.

A thread of the client requests the metrics of all processes and writes the responses. It does not
wait for a process that does not respond. `benchkit.store` parses the texts.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed.metrics import time

from benchkit.measure.capture_client import Observer
from benchkit.measure.prometheus.http import Endpoint, HttpError, find_endpoints, request
from benchkit.measure.recording import RecordingWriter

__all__ = ["Scraper"]

#: Shortest interval of scrapes in s.
SCRAPE_EVERY_S = 2.0
#: Interval in s per process: 15 s (the default of Prometheus) for 300 processes, because parsing
#: takes 3 ms per text.
SCRAPE_S_PER_PROCESS = 0.05
#: A process with a blocked event loop responds late; it is scraped again in the next round.
RESPONSE_TIMEOUT_S = 1.5
#: Rounds between updates of the list of processes.
ROUNDS_PER_UPDATE = 5
#: A response takes 6 ms: a round with 300 workers takes 0.3 s.
N_THREADS = 8
#: Response of Dask without prometheus-client.
NO_METRICS = b"# Prometheus metrics are not available"


class Scraper:
    """Scrape one cluster in a background thread, from `begin` to `end`."""

    def __init__(
        self,
        client: Any,
        writer: RecordingWriter,
        observer: Observer,
        add_error: Callable[[str], None],
    ) -> None:
        self.client, self.writer, self.add_error = client, writer, add_error
        self.observer = observer
        self._endpoints: dict[str, Endpoint] = {}
        self._present: list[Endpoint] = []
        self._silent: dict[str, str] = {}
        self._without_http: set[str] = set()
        self._no_metrics = False
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(N_THREADS, thread_name_prefix="benchkit-scrape")
        self._thread = threading.Thread(target=self._run, name="benchkit-scraper", daemon=True)

    def begin(self) -> None:
        """Scrape once, so that counters have a first value, and start the thread."""
        self._update_processes()
        self._round()
        self._thread.start()

    def end(self) -> None:
        """Scrape a last time, and report processes that did not respond."""
        self._stop.set()
        self._thread.join(3 * RESPONSE_TIMEOUT_S + SCRAPE_EVERY_S)
        if self._thread.is_alive():
            self.add_error("scraping did not end in time")
        else:
            self._round()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for text in self._problems():
            self.add_error(text)
        self.writer.segment({"scrape_clock": {"ahead": self.observer.clock_ahead}})

    def _run(self) -> None:
        rounds = 0
        while not self._stop.wait(max(SCRAPE_EVERY_S, SCRAPE_S_PER_PROCESS * len(self._present))):
            rounds += 1
            try:
                if rounds % ROUNDS_PER_UPDATE == 0:
                    self._update_processes()
                self._round()
            except Exception as error:
                self.add_error(f"scraping: {type(error).__name__}: {error}".splitlines()[0][:200])

    def _update_processes(self) -> None:
        """Update the list of processes of the cluster."""
        self._present = [
            endpoint for endpoint in find_endpoints(self.client) if self._serves(endpoint)
        ]
        new = [endpoint for endpoint in self._present if endpoint.instance not in self._endpoints]
        if new:
            self._endpoints.update({endpoint.instance: endpoint for endpoint in new})
            self.writer.segment({"endpoints": [endpoint.to_dict() for endpoint in new]})

    def _serves(self, endpoint: Endpoint) -> bool:
        if not endpoint.instance:
            self._without_http.add(endpoint.address)
        return bool(endpoint.instance)

    def _round(self) -> None:
        moment = time()
        responses = list(self._pool.map(self._scrape, self._present))
        rows = [
            [moment, endpoint.instance, zlib.compress(text)]
            for endpoint, text in zip(self._present, responses, strict=True)
            if isinstance(text, bytes)
        ]
        if rows:
            self.writer.segment({"scrapes": rows})
        silent = {
            endpoint.instance: text
            for endpoint, text in zip(self._present, responses, strict=True)
            if isinstance(text, str)
        }
        if silent and not self._stop.is_set():
            self._update_processes()  # ignore processes that have left
            present = {endpoint.instance for endpoint in self._present}
            silent = {name: text for name, text in silent.items() if name in present}
        self._silent.update(silent)

    def _scrape(self, endpoint: Endpoint) -> bytes | str | None:
        """Return the metrics of a process (bytes), the reason for a failure (str), or None."""
        try:
            text = request(endpoint.url, timeout_s=RESPONSE_TIMEOUT_S, direct=True)
        except HttpError as error:
            return str(error)
        if text.startswith(NO_METRICS):
            self._no_metrics = True
            return None
        return text

    def _problems(self) -> list[str]:
        problems = []
        if self._no_metrics:
            problems.append(
                "/metrics are empty: prometheus-client is not installed where scheduler and "
                "workers run"
            )
        if self._without_http:
            problems.append(
                f"{len(self._without_http)} processes serve no HTTP, so they have no /metrics: "
                f"{_first_three(sorted(self._without_http))}"
            )
        if self._silent:
            named = [
                f"{self._endpoints[instance].role} {self._endpoints[instance].address} ({reason})"
                for instance, reason in self._silent.items()
            ]
            problems.append(
                f"{len(named)} of {len(self._endpoints)} processes did not respond each time: "
                f"{_first_three(named)}"
            )
        return problems


def _first_three(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
