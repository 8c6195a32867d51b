"""Crawl the dashboard and the site of a hostile store: ``python benchmarks/crawl.py [--pages N]``.

Each string of its runs contains a payload (`validation/hostile_store.py`). Chromium opens each page
that a link leads to, the tabs of a run, and addresses with payloads, and hovers over what it shows.
Prints what was executed, requested elsewhere, or linked as a script; exit code 1 if anything was.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections import deque
from pathlib import Path
from urllib.parse import quote

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from playwright.sync_api import Error, Page, sync_playwright  # noqa: E402

from benchkit.show.site import build_site  # noqa: E402
from validation.dashboard_server import READY, running_dashboard  # noqa: E402
from validation.hostile_store import PAYLOADS, hostile_store  # noqa: E402

VIEWS = ("runs", "workloads", "environments", "history", "compare", "run", "live", "regressions")
TABS = ("overview", "tasks", "stacks", "transfers", "machines", "trouble", "facts")
#: Links, shadow roots included.
LINKS = """() => {
  const found = [];
  const search = root => { for (const element of root.querySelectorAll("*")) {
    if (element.tagName.toLowerCase() === "a")
      found.push(String(element.href.baseVal ?? element.href));
    if (element.shadowRoot) search(element.shadowRoot); } };
  search(document);
  return found; }"""
#: Moves the mouse over everything, as a person would who reads tooltips.
HOVER = """() => {
  const search = root => { for (const element of root.querySelectorAll("*")) {
    for (const kind of ["mouseover", "mouseenter", "mousemove", "focus"])
      element.dispatchEvent(new MouseEvent(kind, {bubbles: true}));
    if (element.shadowRoot) search(element.shadowRoot); } };
  search(document); }"""


class Crawl:
    """Opens pages and counts what must not happen."""

    def __init__(self, page: Page, own: str) -> None:
        self.page, self.own = page, own
        self.n_pages = 0
        self.executed: list[str] = []
        self.elsewhere: list[str] = []
        self.scripts: list[str] = []
        page.on("dialog", lambda dialog: (self.executed.append(page.url), dialog.dismiss()))
        page.on("request", lambda request: self._requested(request.url))

    def _requested(self, url: str) -> None:
        if not url.startswith((self.own, self.own.replace("http", "ws", 1), "data:", "blob:")):
            self.elsewhere.append(url)

    def assert_sees_script(self) -> None:
        """Check on a page that does not escape a payload that the crawl would notice."""
        self.page.set_content(PAYLOADS[1])
        self.page.wait_for_function("window.hacked === 1")

    def visit(self, url: str, ready: str = "true") -> list[str]:
        """Open a page, hover over it, and return its own links."""
        try:
            self.page.goto(url)
            self.page.wait_for_function(ready, timeout=60_000)
            self.page.evaluate(HOVER)
            self.page.wait_for_timeout(300)
            if self.page.evaluate("window.hacked") is not None:
                self.executed.append(url)
            links = self.page.evaluate(LINKS)
        except Error as error:
            print(f"{url}: {str(error).splitlines()[0]}", flush=True)
            return []
        self.n_pages += 1
        self.scripts += [link for link in links if re.match(r"\s*javascript:", link, re.I)]
        return [link.split("#")[0] for link in links if link.startswith(self.own)]

    def follow(self, first: list[str], limit: int, ready: str = "true") -> None:
        """Open pages and those that they link to, each once, up to a number."""
        waiting, seen = deque(first), set(first)
        while waiting and limit:
            limit -= 1
            for link in self.visit(waiting.popleft(), ready):
                if link not in seen:
                    seen.add(link)
                    # Runs are many: a page of each other kind comes first.
                    (waiting.append if "view=run&" in link else waiting.appendleft)(link)

    def report(self, name: str) -> int:
        """Print the counts; return how many things happened that must not."""
        print(
            f"{name}: {self.n_pages} pages, {len(self.executed)} executed, "
            f"{len(self.elsewhere)} requests elsewhere, {len(self.scripts)} javascript: links"
        )
        for line in sorted({*self.executed, *self.elsewhere, *self.scripts}):
            print(f"    {line}")
        return len(self.executed) + len(self.elsewhere) + len(self.scripts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=80, help="largest number that links lead to")
    given = parser.parse_args()
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)))
    n_wrong = 0
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        store = hostile_store(Path(temporary))
        print(f"{len(store.runs())} runs, {len(PAYLOADS)} payloads", flush=True)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with running_dashboard(store.path) as (address, _):
            crawl = Crawl(browser.new_page(), address.split("?")[0].rstrip("/"))
            crawl.assert_sees_script()
            crawl.follow([address], given.pages, READY)
            failed = store.runs(outcome="failed")["id"].tolist()
            tabs = [f"view=run&id={i}&tab={tab}" for i, tab in zip(failed, TABS * 9, strict=False)]
            words = [
                f"view={v}&workload={quote(p)}" for v, p in zip(VIEWS * 2, PAYLOADS, strict=True)
            ]
            words += [f"view={quote(p)}&id={quote(p)}&tab={quote(p)}" for p in PAYLOADS]
            for query in (*tabs, *words):
                crawl.visit(f"{crawl.own}?{query}", READY)
            n_wrong += crawl.report("dashboard")
            crawl.page.goto("about:blank")
        index = build_site(store, Path(temporary) / "site")
        crawl = Crawl(browser.new_page(), index.parent.as_uri())
        crawl.follow([index.as_uri()], given.pages)
        n_wrong += crawl.report("site")
        browser.close()
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
