import json
import re
import shutil
from dataclasses import replace
from xml.etree import ElementTree

import pandas as pd
import pytest
from click.testing import CliRunner

from benchkit.analysis.regression.history import build_history
from benchkit.cli.main import benchkit as main
from benchkit.errors import MissingParts, SiteError, UsageError
from benchkit.show.site import build_site
from benchkit.show.site.collect import SiteData, collect_site, page_name
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
    page = build_site(store, tmp_path_factory.mktemp("site") / "out", address="https://e.org/p")
    return page.parent


def content(site, name):
    text = (site / "data" / f"{name}.js").read_text()
    return json.loads(text.partition("=")[2].rstrip(";\n"))


def test_site_has_page_of_each_workload_and_regression(site, store):
    workloads = store.runs(columns=["workload"])["workload"].unique()
    (regression,) = (site / "regressions").iterdir()

    assert {path.name for path in (site / "w").iterdir()} == {
        f"{page_name(name)}.html" for name in workloads
    }
    assert "+14 %" in regression.read_text()
    assert "82 % of it is transfer in the group sum." in regression.read_text()
    assert SLOWER in (site / "index.html").read_text()
    assert FAILING in (site / "failures.html").read_text()
    assert "bench-1" in (site / "machines.html").read_text()
    assert "disk &lt;b&gt;full&lt;/b&gt;" in (site / "machines.html").read_text()


def test_workload_page_has_every_run_and_metric(site, store):
    data = content(site, page_name(FASTER))
    runs = store.runs(FASTER)

    assert sorted(data["runs"]["id"]) == sorted(runs["id"])
    kept = dict(zip(data["runs"]["id"], data["runs"]["values"]["duration"], strict=True))
    wanted = runs.set_index("id")["duration"]
    assert all(abs(kept[name] / wanted[name] - 1) < 1e-4 for name in wanted.index)
    assert {"duration", "memory_peak", "memory_mean", "network_bytes"} <= set(data["metrics"])
    assert any(
        metric == "duration" and ratio < 0.87 for _, metric, _, _, ratio, *_ in data["changes"]
    )


def test_overview_ignores_regression_of_other_scale(store):
    data = collect_site(store, metrics=("duration",))
    runs = store.runs()
    half = runs[(runs["workload"] == SLOWER) & (runs["environment"] == "main")].assign(scale=0.5)
    history = build_history(pd.concat([runs, half]), metrics=("duration",), marks=store.marks())
    rows = replace(data, history=history).overview()["rows"]

    shown = {
        row["scale"]: row["metrics"]["duration"]["regression"]
        for row in rows
        if row["workload"] == SLOWER and row["environment"] == "main"
    }
    assert shown == {1.0: data.regressions[0].id, 0.5: None}


def test_overview_shows_open_regressions_and_last_changes(site):
    rows = {(row["workload"], row["environment"]): row for row in content(site, "overview")["rows"]}

    assert rows[SLOWER, "main"]["metrics"]["duration"]["regression"]
    assert rows[SLOWER, "release"]["metrics"]["duration"]["regression"] is None
    assert rows[FAILING, "main"]["outcome"] == "failed"
    assert rows[FAILING, "main"]["metrics"]["duration"]["now"] is None  # not an older number


def test_regression_has_one_size_on_all_pages(site):
    rows = {(row["workload"], row["environment"]): row for row in content(site, "overview")["rows"]}
    shown = rows[SLOWER, "main"]["metrics"]["duration"]
    changes = [row for row in content(site, page_name(SLOWER))["changes"] if row[1] == "duration"]

    assert (shown["ratio"], shown["change"]["ratio"]) == (1.14, 1.14)
    assert changes[-1][4:7] == [1.14, 1.11, 1.17]


def test_regressions_page_has_improvements(site):
    text = (site / "regressions.html").read_text()
    section = text.partition("<h2>Improvements</h2>")[2]

    assert section.count(">wall time of the workload in ") == 2  # in both environments
    assert FASTER in section
    assert SLOWER not in section


def test_pages_of_regressions_name_the_owner(site):
    (regression,) = [path.read_text() for path in (site / "regressions").glob("*.html")]

    assert "<th>who should look</th><td>array team" in regression
    assert "<td>array team</td>" in (site / "regressions.html").read_text()
    rows = {row["workload"]: row["owner"] for row in content(site, "overview")["rows"]}
    assert (rows[SLOWER], rows[FASTER]) == ("array team", "")


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
    page = build_site(store, tmp_path / "out")
    before = page.read_text()

    def full(*words, **more):
        raise OSError("no space left")

    monkeypatch.setattr("benchkit.show.site.build.rss_feed", full)
    with pytest.raises(SiteError, match="could not be written: no space left; an earlier site"):
        build_site(store, tmp_path / "out")
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
    whole = SiteData.workload

    def damaged(self, name):
        if name == FASTER:
            raise KeyError("no <b>series</b>")
        return whole(self, name)

    monkeypatch.setattr(SiteData, "workload", damaged)
    monkeypatch.setattr(SiteData, "machines", lambda self: (tmp_path / "none").read_text())
    page = f"w/{page_name(FASTER)}.html"

    with pytest.raises(MissingParts) as raised:
        build_site(store, tmp_path / "out")

    reason = "cannot be shown: KeyError: 'no <b>series</b>'"
    assert raised.value.lines == [
        f"{page} {reason}",
        f"machines.html cannot be shown: {tmp_path / 'none'}: not accessible: "
        "No such file or directory",
    ]
    assert (
        "KeyError: &#39;no &lt;b&gt;series&lt;/b&gt;&#39;" in (tmp_path / "out" / page).read_text()
    )
    assert SLOWER in (tmp_path / "out" / "index.html").read_text()
    assert content(tmp_path / "out", page_name(SLOWER))["workload"] == SLOWER


def test_report_site_names_the_pages_that_it_lacks(store, tmp_path, monkeypatch):
    monkeypatch.setattr(SiteData, "failures", lambda self: 1 / 0)

    done = CliRunner().invoke(
        main, ["report", "site", "-o", str(tmp_path / "out"), "--store", str(store.path)]
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
        index = build_site(copied, tmp_path / "out")

    assert [path.stem for path in (index.parent / "regressions").iterdir()] == [
        opened["regression"]
    ]
    assert SLOWER in index.read_text()


def test_build_site_of_empty_store(tmp_path):
    Store(tmp_path / "store").create()
    page = build_site(Store(tmp_path / "store"), tmp_path / "out")

    assert "0 workloads" in page.read_text()
    assert "No run failed" in (page.parent / "failures.html").read_text()


def test_report_site_command_writes_selected_metrics(store, tmp_path):
    words = ["report", "site", "--store", str(store.path), "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(main, [*words, "--metric", "n_tasks"])

    assert result.exit_code == 0, result.output
    assert result.stdout.strip().endswith("index.html")
    assert list(content(tmp_path / "out", "overview")["metrics"]) == ["n_tasks"]
    wrong = CliRunner().invoke(main, [*words, "--metric", "durations"])
    assert wrong.exit_code == 2


def test_site_draws_excluded_runs_separately(store):
    data = collect_site(store).workload("frame.groupby")
    at = [i for i, counts in enumerate(data["runs"]["counts"]) if not counts]

    assert len(at) == 4  # two nights, two environments
    assert [mark["reason"] for mark in data["marks"]] == ["disk <b>full</b>"]


def n_dots(page):
    paths = page.locator("#chart .dots")
    return sum(paths.nth(i).get_attribute("d").count("h0") for i in range(paths.count()))


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_site_opens_from_disk(site, browser, artifacts, scheme):
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1400, "height": 900})
    page, troubles, asked = context.new_page(), [], []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())

    page.get_by_label("Find").fill("vorticity main")
    assert page.locator("#overview tbody tr").count() == 1
    page.get_by_label("Find").fill("")
    page.get_by_label("Size of change").select_option("10")
    rows = page.locator("#overview tbody tr").all_inner_texts()
    assert any(SLOWER in row for row in rows)
    assert not any("array.basic_sum" in row for row in rows)
    page.get_by_label("Size of change").select_option("0")
    page.get_by_label("Find").fill("vorticity main")
    page.get_by_label("Show").select_option("news")
    page.get_by_label("Metric").select_option("memory_peak")
    page.screenshot(path=artifacts / f"site-overview-{scheme}.png", full_page=True)

    page.get_by_label("Show").select_option("all")
    page.get_by_label("Metric").select_option("duration")
    page.locator("#overview tbody a").first.click()
    page.wait_for_selector("#chart .dots")
    assert page.locator("h1").inner_text() == SLOWER
    assert n_dots(page) == 120
    box = page.locator("#chart svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    assert "2026-10" in page.locator("#chart .tip").inner_text()
    page.get_by_label("main on bench-1").uncheck()
    assert n_dots(page) == 60
    page.get_by_label("Range").select_option("7")
    assert n_dots(page) == 8  # one a night, both ends of the week
    page.get_by_label("Range").select_option("")
    page.get_by_label("Metric").select_option("memory_peak")
    assert "GiB" in page.locator("#chart").inner_text()
    page.screenshot(path=artifacts / f"site-workload-{scheme}.png", full_page=True)

    page.locator("a", has_text="+14 %").first.click()
    page.wait_for_selector("#chart .dots")
    assert "82 % of it is transfer" in page.locator("main").inner_text()
    page.screenshot(path=artifacts / f"site-regression-{scheme}.png", full_page=True)
    page.go_back()
    assert page.locator("h1").inner_text() == SLOWER
    context.close()

    assert not troubles
    assert all(url.startswith("file:") for url in asked)


@pytest.mark.browser
def test_site_fits_the_screen_of_a_telephone(site, browser):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    pages = ["index", "regressions", "failures", "machines"]
    files = [site / f"{name}.html" for name in pages] + [next(site.glob("w/*.html"))]
    for file in files:
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 390, file.name

    chart = page.locator("#chart svg")
    drawn = [float(number) for number in chart.get_attribute("viewBox").split()]
    assert drawn[2] == pytest.approx(chart.bounding_box()["width"], abs=2)  # text is not squeezed
    page.goto((site / "index.html").as_uri())
    state = page.locator("#overview tbody tr").first.locator("td").nth(2).bounding_box()
    assert state["x"] + state["width"] <= 390


@pytest.mark.browser
def test_tables_of_site_fit_1200_pixels(site, browser):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    pages = ["index", "regressions", "failures", "machines"]
    files = [site / f"{name}.html" for name in pages] + [*site.glob("w/*.html")]
    boxes = "[...document.querySelectorAll('.scroll')]"
    for file in files:
        page.goto(file.as_uri())
        assert page.locator(".scroll td").count() > 0, file.name
        too_wide = f"{boxes}.filter(e => e.scrollWidth > e.clientWidth)"
        assert page.evaluate(f"{too_wide}.length") == 0, file.name
