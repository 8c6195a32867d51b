"""Read a range of time from a Prometheus server, by its HTTP API.

Knows the API and its limits: one query of all series, at a step that keeps the answer within what
the server gives and a run file should hold. Does not know what the series mean.
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

from benchkit.measure.prometheus.http import HttpError, ask

__all__ = ["read_range", "selector_of"]

STEP_S = 1.0
#: A server refuses more points a series (11,000), and a run file should not hold more values.
MOST_POINTS, MOST_VALUES = 11_000, 2_000_000
ANSWER_WITHIN_S = 10.0
#: So old may a value be that counts as the present one: the server's own default.
LOOK_BACK_S = 300
#: What the client library and the server add to every process tells nothing of Dask.
NOT_OURS = '__name__!~"python_.*|scrape_.*"'
_LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}


def selector_of(instances: Iterable[str], match: str = "") -> str:
    """Return the selector of a cluster's series.

    Parameters
    ----------
    instances : iterable of str
        ``host:port`` of its processes.
    match : str, default ""
        A selector to use in place of them.

    Examples
    --------
    >>> selector_of(["10.0.0.7:8787"])
    '{instance=~"10[.]0[.]0[.]7:8787",__name__!~"python_.*|scrape_.*"}'
    >>> selector_of([], '{job="dask"}')
    '{job="dask",__name__!~"python_.*|scrape_.*"}'
    """
    if match:
        return f"{match.strip().rstrip('}').rstrip(', ')},{NOT_OURS}}}"
    names: set[str] = set()
    for instance in instances:
        host, _, port = instance.rpartition(":")
        # What runs on this machine can be scraped under several names.
        own = {*_LOOPBACK, socket.gethostname()} if host in _LOOPBACK else {host}
        names |= {f"{name}:{port}" for name in own}
    pattern = "|".join(re.sub(r"([^\w:|-])", r"[\1]", name) for name in sorted(names))
    return f'{{instance=~"{pattern}",{NOT_OURS}}}'


def read_range(url: str, selector: str, start: float, stop: float) -> dict[str, Any]:
    """Return what a server knows of the series of a selector between two moments.

    Parameters
    ----------
    url : str
        Address of the server.
    selector : str
        Of the series.
    start, stop : float
        Unix time in s on this machine's clock.

    Returns
    -------
    dict
        ``answer``: the server's, compressed JSON; ``metadata``: kind and help of the metrics by
        name; ``step`` in s; ``ahead``: seconds that the server's clock is ahead of ours.

    Raises
    ------
    HttpError
        There is no such server, it refuses, or it knows no such series.
    """
    asked = time()
    now = float(_query(url, "query", query="time()")["result"][0])
    ahead = min(now - asked, 0.0) + max(now - time(), 0.0)
    begin, end = start + ahead, stop + ahead
    duration = max(end - begin, 0.001)
    # Over the whole range, because workers come and go, and as far before it as a query looks back.
    window = math.ceil(duration) + LOOK_BACK_S
    count = f"count(last_over_time({selector}[{window}s]))"
    found = _query(url, "query", query=count, time=f"{end:.3f}")["result"]
    n_series = int(float(found[0]["value"][1])) if found else 1
    # From clock on to clock off, both included: counters are read as the difference of the two.
    n_steps = max(1, min(int(duration / STEP_S), MOST_POINTS - 1, MOST_VALUES // n_series))
    step = math.floor(1000 * duration / n_steps) / 1000  # the server rounds to ms
    begin = end - n_steps * step
    answer = _ask(
        url, "query_range",
        query=selector, start=f"{begin:.3f}", end=f"{end + 0.001:.3f}", step=f"{step:.3f}",
    )  # fmt: skip
    names = {series["metric"].get("__name__", "") for series in _data(answer)["result"]}
    if not names:
        raise HttpError(
            f"the server knows no series of {_short(selector)} at the time of the run: does it "
            "scrape scheduler and workers? --prometheus-match names series by other labels"
        )
    try:
        known = _query(url, "metadata")
    except HttpError:  # some that speak the API keep none: names tell the units
        known = {}
    metadata = {name: known[name][0] for name in names if known.get(name)}
    return {
        "answer": zlib.compress(answer),
        "metadata": metadata,
        "step": step,
        "ahead": ahead,
    }


def _query(url: str, endpoint: str, **form: str) -> Any:
    return _data(_ask(url, endpoint, **form))


def _ask(url: str, endpoint: str, **form: str) -> bytes:
    address = f"{url.rstrip('/')}/api/v1/{endpoint}"
    try:
        # Posted: a selector of 300 workers is too long for an address.
        return ask(address, timeout_s=ANSWER_WITHIN_S, form=form or None)
    except HttpError as error:
        try:
            said = json.loads(error.body)["error"]
        except (ValueError, KeyError, TypeError):
            raise error from None  # not what Prometheus says; the reason alone must do
        raise HttpError(f"the server refuses: {said}"[:300]) from error


def _data(answer: bytes) -> Any:
    try:
        return json.loads(answer)["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise HttpError("the server answers, but not as Prometheus does") from error


def _short(selector: str) -> str:
    return selector if len(selector) < 160 else f"{selector[:150]}...}}"
