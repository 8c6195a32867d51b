"""Scrape the metrics of scheduler and workers into a recording while something runs.

A thread of the client asks every process in turn, writes down what it said, and never waits for
one that does not answer. The texts are kept as they are; the analysis side parses them.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed.metrics import time

from benchkit.measure.prometheus.http import Endpoint, HttpError, ask, find_endpoints
from benchkit.measure.recording import RecordingWriter

__all__ = ["Scraper"]

#: Seconds between rounds; a cluster of 300 is asked as often as a server asks by default, or the
#: parsing of what it said (3 ms a text) would take longer than the run.
SCRAPE_EVERY_S, S_PER_PROCESS = 2.0, 0.05
#: A process whose event loop is blocked answers late; the next round asks it again.
ANSWER_WITHIN_S = 1.5
#: Rounds after which the cluster is asked who is there, also when everybody answers.
LOOK_EVERY = 5
#: 300 workers answer in 6 ms each: a round takes 0.3 s.
AT_ONCE = 8
#: What Dask serves where prometheus-client is not installed.
NOTHING = b"# Prometheus metrics are not available"


class Scraper:
    """Scrapes one cluster until it is told to stop.

    Parameters
    ----------
    client : Client
        Of the cluster.
    writer : RecordingWriter
        Takes tables `scrapes` (Unix time on this process's clock, instance, compressed text) and
        `endpoints`.
    note : callable
        Told in a line what is missing.
    """

    def __init__(self, client: Any, writer: RecordingWriter, note: Callable[[str], None]) -> None:
        self.client, self.writer, self.note = client, writer, note
        self._known: dict[str, Endpoint] = {}
        self._present: list[Endpoint] = []
        self._silent: dict[str, str] = {}
        self._bare: set[str] = set()
        self._empty = False
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="benchkit-scrape")
        self._thread = threading.Thread(target=self._run, name="benchkit-scraper", daemon=True)

    def start(self) -> None:
        """Scrape once, so that counters have a beginning, and go on in the background."""
        self._look()
        self._round()
        self._thread.start()

    def stop(self) -> None:
        """Scrape a last time and tell what did not answer."""
        self._stop.set()
        self._thread.join(3 * ANSWER_WITHIN_S + SCRAPE_EVERY_S)
        if self._thread.is_alive():
            self.note("scraping did not end in time")
        else:
            self._round()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for text in self._troubles():
            self.note(text)

    def _run(self) -> None:
        rounds = 0
        while not self._stop.wait(max(SCRAPE_EVERY_S, S_PER_PROCESS * len(self._present))):
            rounds += 1
            try:
                if rounds % LOOK_EVERY == 0:
                    self._look()
                self._round()
            except Exception as error:
                self.note(f"scraping: {type(error).__name__}: {error}".splitlines()[0][:200])

    def _look(self) -> None:
        """Ask the cluster who is there."""
        self._present = [end for end in find_endpoints(self.client) if self._serves(end)]
        new = [end for end in self._present if end.instance not in self._known]
        if new:
            self._known.update({end.instance: end for end in new})
            self.writer.segment({"endpoints": [end.to_dict() for end in new]})

    def _serves(self, end: Endpoint) -> bool:
        if not end.instance:
            self._bare.add(end.address)
        return bool(end.instance)

    def _round(self) -> None:
        moment = time()
        answers = list(self._pool.map(self._ask, self._present))
        rows = [
            [moment, end.instance, zlib.compress(text)]
            for end, text in zip(self._present, answers, strict=True)
            if isinstance(text, bytes)
        ]
        if rows:
            self.writer.segment({"scrapes": rows})
        silent = {
            end.instance: text
            for end, text in zip(self._present, answers, strict=True)
            if isinstance(text, str)
        }
        if silent and not self._stop.is_set():
            self._look()  # who has left need not answer
            present = {end.instance for end in self._present}
            silent = {name: text for name, text in silent.items() if name in present}
        self._silent.update(silent)

    def _ask(self, end: Endpoint) -> bytes | str | None:
        """Return what one process says; a text tells why it said nothing."""
        try:
            text = ask(end.url, timeout_s=ANSWER_WITHIN_S, direct=True)
        except HttpError as error:
            return str(error)
        if text.startswith(NOTHING):
            self._empty = True
            return None
        return text

    def _troubles(self) -> list[str]:
        found = []
        if self._empty:
            found.append(
                "/metrics are empty: prometheus-client is not installed where scheduler and "
                "workers run"
            )
        if self._bare:
            found.append(
                f"{len(self._bare)} processes serve no HTTP, so they have no /metrics: "
                f"{_few(sorted(self._bare))}"
            )
        if self._silent:
            named = [
                f"{self._known[instance].role} {self._known[instance].address} ({reason})"
                for instance, reason in self._silent.items()
            ]
            found.append(f"{len(named)} of {len(self._known)} processes did not answer each time: "
                         f"{_few(named)}")  # fmt: skip
        return found


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
