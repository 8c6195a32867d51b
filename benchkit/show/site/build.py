"""Write the published site: pages, data files and feeds.

A build is written to a temporary folder that replaces the old site at the end, so that a crash
keeps the old site. The pages make no network requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any

from bokeh.util.paths import bokehjs_path
from markupsafe import Markup

from benchkit import __version__
from benchkit.analysis.regression.history import History, build_history
from benchkit.analysis.regression.regression import Regression, read_ledger
from benchkit.analysis.regression.status import improvements, workload_owners
from benchkit.errors import MissingParts, SiteError, UnreadableRun, UsageError, describe_error
from benchkit.experiment.nightly.night import night_of
from benchkit.formatting import counted
from benchkit.show.pages.history import WorkloadNights, change_table
from benchkit.show.pages.history import figure as history_figure
from benchkit.show.pages.history import page as workload_page
from benchkit.show.pages.machines import failures_page, machines_page
from benchkit.show.pages.night import NightSeries
from benchkit.show.pages.night import page as night_page
from benchkit.show.pages.page import Page, page_name, site_address
from benchkit.show.pages.regressions import REPORTED, regression_page
from benchkit.show.pages.regressions import page as regressions_page
from benchkit.show.render.html import ELEMENT_STYLES, PAGE_STYLES, page_markup
from benchkit.show.templates import render_template, silent
from benchkit.store.filters import parse_moment
from benchkit.store.marks import active_marks
from benchkit.store.runfile import read_attribute
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from benchkit.whole_file import drafted

#: Maximum number of items in a feed, newest first; feed readers keep older items.
MAX_ITEMS = 100


def feed_items(regressions: Sequence[Regression], address: str) -> list[dict[str, Any]]:
    """Return the reportable events of a ledger as feed items, newest first."""
    items = []
    for regression in regressions:
        for event in regression.events:
            if event["kind"] not in REPORTED:
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
#: Metrics with figures, in the order of the menu.
SITE_METRICS = (
    "duration",
    "memory_peak",
    "memory_mean",
    "compute_time",
    "transfer_time",
    "network_bytes",
    "spilled_peak",
)
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
    events, marks = store.events(), store.marks()
    history = build_history(store.runs(), metrics=metrics, marks=marks)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with drafted(folder) as draft:
            draft.mkdir()
            root = f"{address.rstrip('/')}/" if address else ""
            site = _Site(store, history, events, marks, draft, title, root)
            site.write()
    except OSError as error:
        raise SiteError(
            f"{folder}: the site could not be written: {error.strerror or error}; "
            "an earlier site is unchanged"
        ) from error
    if site.missing:
        raise MissingParts(folder / "index.html", site.missing)
    return folder / "index.html"


@dataclass
class _Site:
    """Writer of the files of one build."""

    store: Store
    history: History  # Series of the shown metrics
    events: Sequence[Mapping[str, Any]]  # All events of the ledger
    marks: Sequence[Mapping[str, Any]]
    folder: Path
    title: str
    address: str
    missing: list[str] = field(default_factory=list)  # A line per page that cannot be shown

    def __post_init__(self) -> None:
        self.regressions = read_ledger(self.events, self.marks)
        self.owners = workload_owners(self.history.runs)
        self.runs_by_workload = dict(list(self.history.runs.groupby("workload")))

    def write(self) -> None:
        """Write all pages and feeds."""
        for name in ("w", "regressions", "static"):
            (self.folder / name).mkdir()
        files = Path(__file__).parent / "files"
        styles = PAGE_STYLES + ELEMENT_STYLES.replace(":host", "body")
        self._put("static/site.css", styles + (files / "site.css").read_text(encoding="utf-8"))
        self._put("static/site.js", (files / "site.js").read_text(encoding="utf-8"))
        script = bokehjs_path() / "js" / "bokeh.min.js"
        self._put("static/bokeh.min.js", silent(script.read_text(encoding="utf-8")))
        for workload in self.runs_by_workload:
            self._page(f"w/{page_name(workload)}.html", workload, partial(self._workload, workload))
        for regression in self.regressions:
            name = f"regressions/{regression.id}.html"
            self._page(name, regression.id, partial(self._regression, regression))
        self._page("index.html", "Overview", self._night)
        self._page("regressions.html", "Regressions", self._regressions)
        self._page("failures.html", "Failures", lambda: failures_page(self.history))
        self._page("machines.html", "Machines", self._machines)
        self._try("feed.xml", self._feeds)
        self._put("badge.svg", self._badge())

    def _try(self, name: str, write: Callable[[], None]) -> str:
        """Write a file; return a line if data of the store prevent it."""
        try:
            write()
        except Exception as error:
            # The error of a full disk has no name of a file: no page can be written.
            own = str(self.folder)
            if isinstance(error, OSError) and str(error.filename or own).startswith(own):
                raise
            line = f"cannot be shown: {describe_error(error)}"
            self.missing.append(f"{name} {line}")
            return line
        return ""

    def _page(self, name: str, title: str, make: Callable[[], Page]) -> None:
        """Write a page, or one line in its place."""
        root = "../" * name.count("/")
        line = self._try(name, lambda: self._write_page(name, title, make(), root))
        if line:
            self._write_page(name, title, Page(title, [f"This page {line}"], []), root)

    def _write_page(self, name: str, title: str, page: Page, root: str) -> None:
        body = page_markup(page, partial(site_address, root))
        times = self.history.times
        text = render_template(
            "site/files/page.html",
            title=title,
            site_title=self.title,
            root=root,
            here=name.removesuffix(".html"),
            body=Markup(body),
            has_figures='class="figure"' in body,
            n_runs=len(self.history.runs),
            n_nights=len(times),
            first=str(times[0])[:10] if len(times) else "–",
            last=str(times[-1])[:10] if len(times) else "–",
            made=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            version=__version__,
        )
        self._put(name, text)

    def _put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def _night(self) -> Page:
        night = night_of(self.history, self.store, self.events, self.marks)
        series = [
            NightSeries.judge(self.history, metric, self.events, self.marks)
            for metric in dict.fromkeys(self.history.series["metric"])
        ]
        return night_page(night, series, {"show": "all"})

    def _regressions(self) -> Page:
        better = improvements(self.events)
        changes = change_table(self.history, self.regressions)
        return regressions_page(self.regressions, better, changes, self.owners, {})

    def _nights(self, workload: str) -> WorkloadNights:
        history = self.history.select(workload=workload)
        marks, owner = active_marks(self.marks), self.owners.get(workload, "")
        return WorkloadNights(workload, history, self.regressions, marks, owner)

    def _workload(self, workload: str) -> Page:
        ids = self.runs_by_workload[workload]["id"].tolist()
        source, description = _texts(self.store, ids)
        nights = replace(self._nights(workload), source=source, description=description)
        return workload_page(nights)

    def _regression(self, regression: Regression) -> Page:
        nights = self._nights(regression.workload)
        row = nights.history.find(regression.about)
        figure = None if row is None else history_figure(nights, row)
        return regression_page(regression, nights.owner, figure)

    def _machines(self) -> Page:
        return machines_page(self.history, self.events, active_marks(self.marks))

    def _badge(self) -> str:
        """Return the state of the newest night as an image for a README."""
        n_open = sum(regression.is_open for regression in self.regressions)
        text = counted(n_open, "open regression") if n_open else "no open regression"
        return render_template(
            "site/files/badge.svg", title=self.title, text=text, is_good=not n_open
        )

    def _feeds(self) -> None:
        items = feed_items(self.regressions, self.address)
        feed = {"title": self.title, "address": self.address}
        self._put("feed.json", json_feed(items, **feed))
        self._put("feed.xml", rss_feed(items, **feed))


def _texts(store: Store, ids: Sequence[str]) -> tuple[str, str]:
    """Return source code and description of a workload, from its last readable run."""
    for run_id in reversed(ids):
        path = store.files.path(run_name(run_id))
        try:
            # Read attributes only: opening the whole run takes 0.2 s for each workload.
            return read_attribute(path, "source") or "", read_attribute(path, "description") or ""
        except UnreadableRun:  # pruned or damaged: try an older run
            continue
    return "", ""
