import html
import json
import re
import shutil
from xml.etree import ElementTree

import pandas as pd
import pytest
from click.testing import CliRunner

from benchkit.analysis.regression.history import build_history
from benchkit.cli.main import benchkit as main
from benchkit.errors import MissingParts, SiteError, UsageError
from benchkit.show.pages.night import NightSeries
from benchkit.show.pages.page import page_name
from benchkit.show.site import build, build_site
from benchkit.store.store import Store
from validation.history_data import FAILING, FASTER, SLOWER, fill
from validation.synthetic_runs import make_run

HOSTILE = "x.<script>alert(1)</script>\"'&[a=</script>]"


@pytest.fixture(scope="module")
def store(tmp_path_factory, a_run):
    store = fill(tmp_path_factory.mktemp("site") / "store", a_run, n_nights=60)
    store.mark("exclude", workload="frame.groupby", since="2026-11-01", before="2026-11-03",
               by="ann", reason="disk <b>full</b>")  # fmt: skip
    return store


@pytest.fixture(scope="module")
def site(store, tmp_path_factory):
    metrics = ("duration", "memory_peak", "memory_mean", "network_bytes")
    folder = tmp_path_factory.mktemp("site") / "out"
    page = build_site(store, folder, metrics=metrics, address="https://e.org/p")
    return page.parent


def read(page):
    return page.read_text().replace("<wbr>", "")


def rows(site, name, words=""):
    """Return the texts of the rows of a page that contain all words, each once."""
    text = read(site / name)
    found = [
        html.unescape(re.sub("<[^>]*>", " ", row)) for row in re.findall("<tr.*?</tr>", text, re.S)
    ]
    return [row for row in dict.fromkeys(found) if all(word in row for word in words.split())]


def test_site_has_page_of_each_workload_and_regression(site, store):
    workloads = store.runs(columns=["workload"])["workload"].unique()
    (regression,) = (site / "regressions").iterdir()

    assert {path.name for path in (site / "w").iterdir()} == {
        f"{page_name(name)}.html" for name in workloads
    }
    assert "+14 %" in regression.read_text()
    assert "82 % of it is transfer in the group sum." in regression.read_text()
    assert SLOWER in read(site / "index.html")
    assert FAILING in read(site / "failures.html")
    assert "bench-1" in (site / "machines.html").read_text()
    assert "disk &lt;b&gt;full&lt;/b&gt;" in (site / "machines.html").read_text()


def test_workload_page_has_runs_metrics_and_changes(site, store):
    name = f"w/{page_name(FASTER)}.html"
    newest = store.runs(FASTER).sort_values("started")["id"].iloc[-1]
    options = re.findall('<option value="(.*?)">', (site / name).read_text())

    assert {"duration", "memory_peak", "memory_mean", "network_bytes"} <= set(options)
    assert len(rows(site, name, newest[:13])) == 1
    assert len(rows(site, name, "▼ −1 wall")) == 2  # both environments


def test_overview_of_regression_of_other_scale(store):
    runs = store.runs()
    half = runs[(runs["workload"] == SLOWER) & (runs["environment"] == "main")].assign(scale=0.5)
    history = build_history(pd.concat([runs, half]), metrics=("duration",), marks=store.marks())
    series = NightSeries.judge(history, "duration", store.events(), store.marks())

    states = {
        status.about["scale"]: status.label
        for status in series.statuses
        if (status.about["workload"], status.about["environment"]) == (SLOWER, "main")
    }
    assert states[1.0] == "regressed, new"
    assert states[0.5] != "regressed, new"


def test_overview_shows_open_regressions_and_no_older_numbers(site):
    (failed,) = rows(site, "index.html", f"{FAILING} ✗ bench-1")
    (slower,) = rows(site, "index.html", f"{SLOWER} regressed, new")

    assert failed.split()[:6] == ["✗", "failed", *failed.split()[2:3], "main", "on", "bench-1"]
    assert " s " not in failed
    assert "+14 % since 2026-11-18" in " ".join(slower.split())


def test_regression_has_one_size_on_all_pages(site):
    name = f"w/{page_name(SLOWER)}.html"
    assert rows(site, "index.html", "+14 (+11.0 to +17.0),")
    assert rows(site, "regressions.html", "+14 (+11.0 to +17.0),")
    assert rows(site, name, "▲ +14 (+11 +17 wall time")


def test_regressions_page_has_improvements(site):
    better = [
        row.split()
        for row in rows(site, "regressions.html", "▼ wall time of the workload")
        if row.split()[0] == "▼"
    ]

    assert [words[3] for words in better] == [FASTER, FASTER]  # in both environments


def test_regressions_page_lists_changes_by_date(site):
    text = (site / "regressions.html").read_text().partition("with which packages?")[2]
    found = [
        [html.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall("<td.*?</td>", row)]
        for row in re.findall("<tr.*?</tr>", text, re.S)[1:]
    ]
    nights = [row[1] for row in found]

    assert nights == sorted(nights, reverse=True)
    assert [(row[0], row[1]) for row in found].count((FASTER, "2026-10-12")) == 2


@pytest.mark.parametrize("is_open", [True, False])
def test_badge_has_the_number_of_open_regressions(store, tmp_path, is_open):
    copy = Store(shutil.copytree(store.path, tmp_path / "store"))
    if not is_open:
        copy.mark("accept", workload=SLOWER, by="ann", reason="known")
    folder = build_site(copy, tmp_path / "site", metrics=("duration",)).parent
    badge = ElementTree.parse(folder / "badge.svg").getroot()

    state = "1 open regression" if is_open else "no open regression"
    assert badge.get("aria-label") == f"Dask performance: {state}"
    assert ("#b3261e" in (folder / "badge.svg").read_text()) == is_open


def test_pages_of_regressions_name_the_owner(site):
    (regression,) = [path.read_text() for path in (site / "regressions").glob("*.html")]

    assert re.search("who should look</td><td[^>]*>array team", regression)
    assert rows(site, "regressions.html", "array team open")
    assert rows(site, "index.html", "array team regressed, new")


def test_site_makes_no_requests_and_links_exist(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        for link in re.findall(r'(?:href|src)="([^"#]*)', text):
            if not link.startswith("https://github.com/"):
                assert (page.parent / link).exists(), f"{page.name}: {link}"
        assert not re.search(r"<(?:script|link|img)[^>]+(?:https?:)?//", text)
    assert "http" not in (site / "static" / "site.css").read_text()


def test_feeds_are_valid(site):
    feed = json.loads((site / "feed.json").read_text())
    channel = ElementTree.parse(site / "feed.xml").getroot().find("channel")

    assert feed["version"] == "https://jsonfeed.org/version/1.1"
    (item,) = feed["items"]
    assert item["title"].startswith(f"opened: {SLOWER}")
    assert item["url"].startswith("https://e.org/p/regressions/")
    assert pd.Timestamp(item["date_published"]).tz is not None
    assert [node.text for node in channel.findall("item/link")] == [item["url"]]


def test_site_escapes_texts_of_runs(tmp_path):
    store = Store(tmp_path / "store")
    for night in range(3):
        store.add(make_run(HOSTILE, groups=False, started=f"2026-11-0{night + 1}T02:00:00+00:00",
                           environment="<i>env</i>", host='"><b>', duration=1.0,
                           attrs={"source": "</pre><script>bad()</script>"}))  # fmt: skip
    page = build_site(store, tmp_path / "out", title="<u>T</u>")

    for path in page.parent.rglob("*.html"):
        text = path.read_text()
        assert "<script>alert" not in text
        assert "<script>bad" not in text
        assert "<i>env" not in text
        assert "<u>T" not in text
    assert all(path.parent.name in ("w", "out") or path.parent.parent == page.parent
               for path in page.parent.rglob("*.html"))  # fmt: skip


def test_build_site_keeps_old_site_after_a_crash(store, tmp_path, monkeypatch):
    page = build_site(store, tmp_path / "out", metrics=["duration"])
    before = page.read_text()

    def full(*words, **more):
        raise OSError("no space left")

    monkeypatch.setattr("benchkit.show.site.build.rss_feed", full)
    with pytest.raises(SiteError, match="could not be written: no space left; an earlier site"):
        build_site(store, tmp_path / "out", metrics=["duration"])
    assert page.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="contains files but no site"):
        build_site(store, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").exists()
    with pytest.raises(UsageError, match="is a file; expected a folder"):
        build_site(store, tmp_path / "mine" / "thesis.tex")
    with pytest.raises(SiteError, match="could not be written"):
        build_site(store, "/proc/nothing/site")


def test_site_shows_the_other_pages_when_one_cannot_be_made(store, tmp_path, monkeypatch):
    whole = build.workload_page

    def damaged(nights):
        if nights.name == FASTER:
            raise KeyError("no <b>series</b>")
        return whole(nights)

    monkeypatch.setattr(build, "workload_page", damaged)
    monkeypatch.setattr(build, "machines_page", lambda *data: (tmp_path / "none").read_text())
    page = f"w/{page_name(FASTER)}.html"

    with pytest.raises(MissingParts) as raised:
        build_site(store, tmp_path / "out", metrics=["duration"])

    reason = "cannot be shown: KeyError: 'no <b>series</b>'"
    assert raised.value.lines == [
        f"{page} {reason}",
        f"machines.html cannot be shown: {tmp_path / 'none'}: not accessible: "
        "No such file or directory",
    ]
    text = (tmp_path / "out" / page).read_text()
    assert "KeyError: &#x27;no &lt;b&gt;series&lt;/b&gt;&#x27;" in text
    assert SLOWER in read(tmp_path / "out" / "index.html")
    assert rows(tmp_path / "out", f"w/{page_name(SLOWER)}.html", "ok")


def test_report_site_names_the_pages_that_it_lacks(store, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "failures_page", lambda history: 1 / 0)

    done = CliRunner().invoke(
        main,
        [
            "report",
            "site",
            "-o",
            str(tmp_path / "out"),
            "--store",
            str(store.path),
            "--metric",
            "duration",
        ],
    )

    assert done.exit_code == 3
    assert done.stdout == f"{tmp_path / 'out' / 'index.html'}\n"
    assert "written, but failures.html cannot be shown: ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        {"metric": "nonsense"}, {"facts": ["text"]}, {"facts": {"changed": ["text"]}},
        {"ratio": "large"}, {"night": None},
    ],
)  # fmt: skip
def test_site_leaves_out_a_regression_with_wrong_events(store, tmp_path, wrong):
    copied = Store(shutil.copytree(store.path, tmp_path / "store"))
    opened = next(event for event in copied.events() if event["kind"] == "opened")
    event = {**opened, "regression": "handmade", **wrong}
    del event["id"]
    copied.add_event(event.pop("kind"), **event)
    copied.add_event("set_aside", seen=opened["seen"])

    with pytest.warns(UserWarning, match="regression handmade: skipped: "):
        index = build_site(copied, tmp_path / "out", metrics=["duration"])

    assert [path.stem for path in (index.parent / "regressions").iterdir()] == [
        opened["regression"]
    ]
    assert SLOWER in read(index)


def test_build_site_of_empty_store(tmp_path):
    Store(tmp_path / "store").create()
    page = build_site(Store(tmp_path / "store"), tmp_path / "out")

    assert "No nights yet" in page.read_text()
    assert "No run failed" in (page.parent / "failures.html").read_text()


def test_report_site_command_writes_selected_metrics(store, tmp_path):
    words = ["report", "site", "--store", str(store.path), "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(main, [*words, "--metric", "n_tasks"])

    assert result.exit_code == 0, result.output
    assert result.stdout.strip().endswith("index.html")
    options = re.findall('<option value="(.*?)">', (tmp_path / "out" / "index.html").read_text())
    assert options[0] == "n_tasks"
    assert "duration" not in options
    wrong = CliRunner().invoke(main, [*words, "--metric", "durations"])
    assert wrong.exit_code == 2


def test_site_lists_marks(site):
    text = (site / "w" / f"{page_name('frame.groupby')}.html").read_text()
    assert "disk &lt;b&gt;full&lt;/b&gt;" in text


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_site_opens_from_disk(site, browser, artifacts, scheme):
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1400, "height": 900})
    page, troubles, asked = context.new_page(), [], []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())

    shown = page.locator("tr[data-words]:visible")
    page.get_by_label("Find").fill("vorticity main")
    assert shown.count() == 1
    assert "15 of 16 hidden" in page.locator(".bar").inner_text()
    page.get_by_label("Find").fill("")
    page.get_by_label("Size of change").select_option("10")
    texts = shown.all_inner_texts()
    assert any(SLOWER in row for row in texts)
    assert not any("array.basic_sum" in row for row in texts)
    page.get_by_label("Size of change").select_option("")
    page.get_by_role("button", name="workload", exact=True).last.click()
    names = [text.split("\t")[1] for text in shown.all_inner_texts()]
    assert names == sorted(names)
    page.get_by_label("Find").fill("vorticity main")
    page.get_by_label("Metric").select_option("memory_peak")
    assert "GiB" in shown.first.inner_text()
    assert "metric=memory_peak" in page.url
    assert "find=vorticity" in page.url
    page.screenshot(path=artifacts / f"site-overview-{scheme}.png", full_page=True)

    page.get_by_label("Metric").select_option("duration")
    shown.locator("a").first.click()
    page.wait_for_selector(".chosen canvas")
    assert page.locator("h1").inner_text() == SLOWER
    assert page.locator(".chosen .figure").count() == 2
    page.get_by_label("Range").select_option("30")
    assert "range=30" in page.url
    ends = "Bokeh.documents.flatMap(d => d.roots()).map(f => [f.x_range.start, f.x_range.end])"
    page.reload()  # the address restores the range
    page.wait_for_function(f"{ends}.every(([a, b]) => Math.abs(b - a - 30 * 864e5) < 1)")
    assert page.get_by_label("Range").input_value() == "30"
    page.get_by_label("Metric").select_option("memory_peak")
    page.wait_for_selector(".chosen canvas")
    page.screenshot(path=artifacts / f"site-workload-{scheme}.png", full_page=True)

    page.goto(next((site / "regressions").glob("*.html")).as_uri())
    page.wait_for_selector(".figure canvas")
    assert "82 % of it is transfer" in page.locator("main").inner_text()
    page.screenshot(path=artifacts / f"site-regression-{scheme}.png", full_page=True)
    context.close()

    assert not [text for text in troubles if "document idle" not in text]
    assert all(url.startswith("file:") for url in asked)


@pytest.mark.browser
def test_site_fits_the_screen_of_a_telephone(site, browser):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    pages = ["index", "regressions", "failures", "machines"]
    files = [site / f"{name}.html" for name in pages] + [next(site.glob("w/*.html"))]
    for file in files:
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 390, file.name
    page.goto((site / "index.html").as_uri())
    size = page.locator("tr[data-words] td[data-label=change]").first.bounding_box()
    assert size["x"] + size["width"] <= 390


@pytest.mark.browser
def test_tables_of_site_fit_1200_pixels(site, browser):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    pages = ["index", "regressions", "failures", "machines"]
    files = [site / f"{name}.html" for name in pages] + [*site.glob("w/*.html")]
    boxes = "[...document.querySelectorAll('.wide')]"
    for file in files:
        page.goto(file.as_uri())
        assert page.locator(".wide td").count() > 0, file.name
        too_wide = f"{boxes}.filter(e => e.scrollWidth > e.clientWidth)"
        assert page.evaluate(f"{too_wide}.length") == 0, file.name
