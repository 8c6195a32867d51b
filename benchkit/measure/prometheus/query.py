"""Read a time range from a Prometheus server with its HTTP API.

One query reads all series, with a step that keeps the response within the limits of the server and
of a run file.
"""

from __future__ import annotations

import json
import math
import re
import socket
import zlib
from collections.abc import Iterable
from typing import Any

from distributed.metrics import time

from benchkit.measure.prometheus.http import HttpError, request

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
    return {
        "answer": zlib.compress(response),
        "metadata": metadata,
        "step": step,
        "ahead": ahead,
    }


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
