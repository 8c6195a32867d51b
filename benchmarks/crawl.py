"""Crawl the dashboard and the site of a hostile store: ``python benchmarks/crawl.py [--pages N]``.

Each string of its runs contains a payload: attributes, leaves and keys of JSON, coordinates, task
groups, logs, events, arms, tags, parameters, hosts, environments, marks. Chromium opens each page
that a link leads to, the tabs of a run, and addresses with payloads, and hovers over what it shows.
Prints what was executed, requested elsewhere, or linked as a script; exit code 1 if anything was.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import quote

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import xarray as xr  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402
from validation.dashboard_server import READY, served, with_record  # noqa: E402
from playwright.sync_api import Error, Page, sync_playwright  # noqa: E402

import benchkit  # noqa: E402
from benchkit.measure.run_ids import new_id  # noqa: E402
from benchkit.show.site import build_site  # noqa: E402

#: Each sets `hacked`, in another context.
PAYLOADS = (
    "<script>hacked=1</script>",
    '"><img src=x onerror=hacked=1>',
    "'><svg/onload=hacked=1>",
    "</script><script>hacked=1</script>",
    "</style><script>hacked=1</script>",
    "</textarea><script>hacked=1</script>",
    "--><script>hacked=1</script>",
    '" onmouseover="hacked=1" x="',
    "' onfocus=hacked=1 autofocus x='",
    "javascript:hacked=1",
    "[x](javascript:hacked=1)",
    "</a><a href=javascript:hacked=1>x</a>",
    "${hacked=1}`+(hacked=1)+`",
    "<%= hacked=1 %>{{hacked=1}}@$name",
    "$$\\href{javascript:hacked=1}{x}$$",
    '\\"+(hacked=1)+\\"\';hacked=1;//\u2028',
)
#: What a run needs to be a run.
KEPT = (
    "id", "started", "outcome", "capture", "experiment", "order", "block", "record", "category",
    "metric_versions", "extra_metrics", "kind", "metrics", "topic", "unit", "action", "activity",
    "context", "parent", "keys", "codes", "complete", "level",
)  # fmt: skip
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


def poisoned(value: Any, payload: str) -> Any:
    """Return a value with a payload in each string and a key that is one."""
    if isinstance(value, dict):
        changed = {k: v if k in KEPT else poisoned(v, payload) for k, v in value.items()}
        texts = value and all(isinstance(v, str) for v in value.values())
        return {**changed, payload: payload} if texts else changed
    if isinstance(value, list):
        return [poisoned(item, payload) for item in value]
    return value + payload if isinstance(value, str) else value


def poisoned_text(text: str, payload: str) -> str:
    """Return a text, or the strings of its JSON, with a payload."""
    try:
        value = json.loads(text)
    except ValueError:
        return text + payload
    return json.dumps(poisoned(value, payload)) if isinstance(value, dict | list) else text


def hostile_run(tree: xr.DataTree, payload: str, **facts: Any) -> xr.DataTree:
    """Return a run with a payload in every string."""
    words = {
        name: poisoned_text(str(tree.attrs[name]), payload)
        for name in ("workload", "environment", "host", "tags", "params", "cluster")
    }
    run = with_record(tree, id=new_id(), **words, **facts)
    for name, value in run.attrs.items():
        if isinstance(value, str) and name not in (*KEPT, *words, *facts):
            run.attrs[name] = poisoned_text(value, payload)
    run.attrs |= dict.fromkeys(("description", "source", "traceback", "error"), payload)
    run.attrs["logs"] = json.dumps({payload: [payload]})
    for path in [node.path for node in run.subtree if node.path != "/"]:
        data = run[path].to_dataset()
        for name, column in data.variables.items():
            if column.dtype.kind in "OU" and name not in KEPT and column.ndim == 1:
                texts = [poisoned_text(str(text), payload) for text in column.values]
                assign = data.assign_coords if name in data.coords else data.assign
                data = assign({name: (column.dims, texts)})
        run[path] = xr.DataTree(data)
    return run


def fill(folder: Path) -> benchkit.Store:
    """Return a store with a real run, hostile copies, hostile arms and hostile marks."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    store = benchkit.Store(folder / "store")
    with LocalCluster(**options, dashboard_address=None) as cluster, Client(cluster) as client:
        with benchkit.record(client, workload="tests.sum", store=store) as recorded:
            import dask.array as da

            da.random.random((1000, 1000), chunks=500).dot(da.ones((1000, 9))).sum().compute()
    tree = recorded.run.tree
    for payload in PAYLOADS:
        nights = range(1, 13)
        for night in nights:
            started = f"2026-11-{night:02d}T02:00:00+00:00"
            slow = 1.5 if night > 6 else 1.0
            run = hostile_run(tree, payload, started=started, outcome="ok", duration=slow)
            run["duration"] = run["duration"] * 0 + slow
            store.add(run)
        failed = hostile_run(tree, payload, outcome="failed", error=payload)
        store.add(failed)
        store.mark("exclude", reason=payload, by=payload, runs=[failed.attrs["id"]])
        experiment = new_id()
        for block, arm in itertools.product(range(2), ("main", payload)):
            facts = {"experiment": experiment, "arm": arm, "block": block, "order": block}
            store.add(hostile_run(tree, payload, outcome="ok", **facts))
    return store


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
        store = fill(Path(temporary))
        print(f"{len(store.runs())} runs, {len(PAYLOADS)} payloads", flush=True)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with served(store.path) as address:
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
