"""Write feeds of the events of regressions, as RSS 2.0 and JSON Feed 1.1."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from email.utils import format_datetime
from typing import Any

from benchkit.analysis.regression.regression import Regression
from benchkit.show.templates import render_template
from benchkit.store.filters import parse_moment

__all__ = ["feed_items", "json_feed", "rss_feed"]

#: Maximum number of items in a feed, newest first; feed readers keep older items.
MAX_ITEMS = 100
#: Kinds of events that are reported.
_REPORTED = ("opened", "grown", "eased", "recovered", "ended")


def feed_items(regressions: Sequence[Regression], address: str) -> list[dict[str, Any]]:
    """Return the reportable events of a ledger as feed items, newest first."""
    items = []
    for regression in regressions:
        for event in regression.events:
            if event["kind"] not in _REPORTED:
                continue
            items.append(
                {
                    "id": str(event["id"]),
                    "url": f"{address}regressions/{regression.id}.html",
                    "title": f"{event['kind']}: {regression.title}",
                    "content_text": _text(regression, event),
                    "date": parse_moment(str(event["seen"])),
                }
            )
    return sorted(items, key=lambda item: (item["date"], item["id"]), reverse=True)[:MAX_ITEMS]


def _text(regression: Regression, event: Mapping[str, Any]) -> str:
    where = f"{regression.environment} on {regression.host}"
    details = [regression.facts.get("explanation"), event.get("reason")]
    return "; ".join(str(part) for part in (regression.size, where, *details) if part)


def json_feed(items: Sequence[Mapping[str, Any]], *, title: str, address: str) -> str:
    """Return items as a JSON Feed 1.1 (https://www.jsonfeed.org/version/1.1/)."""
    feed = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": title,
        "items": [
            {
                **{name: value for name, value in item.items() if name != "date"},
                "date_published": item["date"].isoformat(),
            }
            for item in items
        ],
    }
    if address:
        feed |= {"home_page_url": f"{address}index.html", "feed_url": f"{address}feed.json"}
    return json.dumps(feed, indent=1)


def rss_feed(items: Sequence[Mapping[str, Any]], *, title: str, address: str) -> str:
    """Return items as RSS 2.0."""
    functions = {"format_datetime": format_datetime, "printable": _printable}
    return render_template(
        "site/files/feed.xml", items=items, title=title, address=address, **functions
    )


def _printable(text: str) -> str:
    """Return a text without the control characters that XML does not allow."""
    return "".join(c for c in text if c in "\t\n" or (c >= " " and c not in "\ufffe\uffff"))
