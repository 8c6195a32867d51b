"""Write the published site: pages, data files and feeds.

A build is written to a temporary folder that replaces the old site at the end, so that a crash
keeps the old site. The pages make no network requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchkit import __version__
from benchkit.analysis.regression.nights import night_notes
from benchkit.analysis.regression.regression import Regression
from benchkit.analysis.regression.status import workload_owners
from benchkit.errors import MissingParts, SiteError, UsageError, describe_error
from benchkit.formatting import format_bytes, format_seconds
from benchkit.show.site.collect import SITE_METRICS, SiteData, collect_site, page_name
from benchkit.show.templates import render_template
from benchkit.store.filters import parse_moment
from benchkit.store.store import Store
from benchkit.whole_file import drafted

#: Maximum number of items in a feed, newest first; feed readers keep older items.
MAX_ITEMS = 100
#: Kinds of events that are reported.
_FEED_KINDS = ("opened", "grown", "eased", "recovered", "ended")


def feed_items(regressions: Sequence[Regression], address: str) -> list[dict[str, Any]]:
    """Return the reportable events of a ledger as feed items, newest first."""
    items = []
    for regression in regressions:
        for event in regression.events:
            if event["kind"] not in _FEED_KINDS:
                continue
            items.append(
                {
                    "id": str(event["id"]),
                    "url": f"{address}regressions/{regression.id}.html",
                    "title": f"{event['kind']}: {regression.title}",
                    "content_text": _feed_text(regression, event),
                    "date": parse_moment(str(event["seen"])),
                }
            )
    return sorted(items, key=lambda item: (item["date"], item["id"]), reverse=True)[:MAX_ITEMS]


def _feed_text(regression: Regression, event: Mapping[str, Any]) -> str:
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


TITLE = "Dask performance"
#: Outcome -> symbol on the page of failures.
_SYMBOLS = {
    "ok": "·",
    "failed": "✕",
    "wrong_answer": "≠",
    "timeout": "T",
    "lost_workers": "L",
    "infrastructure": "i",
    "skipped": "s",
}
#: File that identifies a folder as a site.
_MARKER = "static/site.js"


def build_site(
    store: Store,
    folder: str | Path,
    *,
    metrics: Sequence[str] = SITE_METRICS,
    title: str = TITLE,
    address: str | None = None,
) -> Path:
    """Write the site of a store; a page that an error prevents says so in one line.

    Raises `MissingParts` after the site is written, if there are such pages.
    """
    folder = Path(folder).resolve()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; expected a folder")
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARKER).exists():
        raise UsageError(f"{folder}: contains files but no site; expected an empty folder")
    data = collect_site(store, metrics=metrics)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with drafted(folder) as draft:
            draft.mkdir()
            writer = _Writer(data, draft, title, f"{address.rstrip('/')}/" if address else "")
            writer.write()
    except OSError as error:
        raise SiteError(
            f"{folder}: the site could not be written: {error.strerror or error}; "
            "an earlier site is unchanged"
        ) from error
    if writer.missing:
        raise MissingParts(folder / "index.html", writer.missing)
    return folder / "index.html"


class _Writer:
    """Writer of the files of one build."""

    def __init__(self, data: SiteData, folder: Path, title: str, address: str) -> None:
        self.data, self.folder, self.title, self.address = data, folder, title, address
        self.missing: list[str] = []  # a line per page that cannot be shown
        times = data.history.times
        self.common: dict[str, Any] = {
            "site_title": title,
            "n_runs": len(data.history.runs),
            "n_nights": len(times),
            "first": str(times[0])[:10] if len(times) else "–",
            "last": str(times[-1])[:10] if len(times) else "–",
            "made": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "version": __version__,
            "page_name": page_name,
            "owners": workload_owners(data.history.runs),
        }

    def write(self) -> None:
        """Write all pages, data files and feeds."""
        for name in ("w", "data", "regressions", "static"):
            (self.folder / name).mkdir()
        for name in ("site.css", "site.js"):
            text = (Path(__file__).parent / "files" / name).read_text(encoding="utf-8")
            self._put(f"static/{name}", text)
        for workload in self.data.workloads:
            name = f"w/{page_name(workload)}.html"
            self._try(name, workload, partial(self._workload, workload))
        for regression in self.data.regressions:
            name = f"regressions/{regression.id}.html"
            self._try(name, regression.id, partial(self._regression, regression))
        self._try("index.html", "Overview", self._overview)
        self._try("regressions.html", "Regressions", self._regressions)
        self._try("failures.html", "Failures", self._failures)
        self._try("machines.html", "Machines", self._machines)
        self._try("feed.xml", "Feed", self._feeds)

    def _try(self, name: str, title: str, write: Callable[[], None]) -> None:
        """Write a page, or one line in its place if data of the store prevent it."""
        try:
            write()
        except Exception as error:
            # The error of a full disk has no name of a file: no page can be written.
            own = str(self.folder)
            if isinstance(error, OSError) and str(error.filename or own).startswith(own):
                raise
            line = f"cannot be shown: {describe_error(error)}"
            self.missing.append(f"{name} {line}")
            if name.endswith(".html"):
                self._page(name, "missing.html", title, line=line)

    def _regressions(self) -> None:
        regressions = sorted(self.data.regressions, key=lambda regression: not regression.is_open)
        self._page(
            "regressions.html",
            "regressions.html",
            "Regressions",
            regressions=regressions,
            improvements=self.data.improvements(),
        )

    def _failures(self) -> None:
        failures = self.data.failures()
        self._page("failures.html", "failures.html", "Failures", **failures, symbols=_SYMBOLS)

    def _machines(self) -> None:
        tables = {"rows": self.data.machines(), "marks": self.data.marks}
        self._page("machines.html", "machines.html", "Machines", **tables)

    def _feeds(self) -> None:
        items = feed_items(self.data.regressions, self.address)
        feed = {"title": self.title, "address": self.address}
        self._put("feed.json", json_feed(items, **feed))
        self._put("feed.xml", rss_feed(items, **feed))

    def _put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def _page(self, name: str, template: str, title: str, **values: Any) -> None:
        root = "../" * name.count("/")
        here = name.removesuffix(".html")
        values = {**self.common, **values, "title": title, "root": root, "here": here}
        self._put(name, render_template(f"site/files/{template}", **values))

    def _script(self, name: str, variable: str, content: Mapping[str, Any]) -> None:
        """Write data as a script: browsers let a page opened from disk read no other file type."""
        text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        # A separate file needs no escape of "</script>"; older engines end lines at these two.
        text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        self._put(f"data/{name}.js", f"window.{variable}={text};\n")

    def _overview(self) -> None:
        content = self.data.overview()
        for row in content["rows"]:
            row["owner"] = self.common["owners"].get(row["workload"], "")
        self._script("overview", "benchkitOverview", content)
        news = sorted(self.data.news, key=lambda event: event["kind"] == "set_aside")
        regressions = {regression.id: regression for regression in self.data.regressions}
        lists = {"workloads": self.data.workloads, "news": news, "regressions": regressions}
        judged = max((night["seen"] for night in self.data.nights), default="")
        notes = night_notes(night for night in self.data.nights if night["seen"] == judged)
        self._page("index.html", "index.html", "Overview", notes=notes, **lists)

    def _workload(self, name: str) -> None:
        page = page_name(name)
        content = self.data.workload(name)
        self._script(page, "benchkitWorkload", content)
        self._page(
            f"w/{page}.html",
            "workload.html",
            name,
            workload=name,
            category=content["series"][0]["category"] if content["series"] else "",
            **self.data.source(name),
        )

    def _regression(self, regression: Regression) -> None:
        self._page(
            f"regressions/{regression.id}.html",
            "regression.html",
            regression.title,
            regression=regression,
            facts=regression.facts,
            parts=[_part(row) for row in regression.facts.get("parts") or []],
        )


def _part(row: Mapping[str, Any]) -> dict[str, str]:
    """Return one part of a difference as text with units."""
    texts = {}
    for name, value in row.items():
        if isinstance(value, (int, float)):
            text = format_bytes(value) if "bytes" in row else format_seconds(value)
            value = f"+{text}" if value > 0 else text
        texts[str(name)] = "–" if value is None else str(value)
    return texts
