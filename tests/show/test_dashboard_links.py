"""Interaction on the dashboard: window, group, two runs, marks, current experiment, downloads."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from helpers.dashboard_server import (
    HOSTILE,
    READY,
    many_tasks,
    open_page,
    sees,
    served,
    with_record,
)
from playwright.sync_api import expect

from benchkit.cli.main import benchkit as command
from benchkit.measure.run_ids import new_id
from benchkit.show.dashboard.compare.page import EXAMPLES, _found
from benchkit.show.dashboard.components import mark_form as marks
from benchkit.show.dashboard.server import only_these
from benchkit.store.run import Run
from benchkit.store.selector import parse_selection
from benchkit.store.store import Store

EXPERIMENT = new_id()
ARMS, BLOCKS = ("main", "new"), 3
ROW = ".tabulator-row .tabulator-cell[tabulator-field='task group']"


def arm_run(a_run, arm, block):
    duration = (10.0 if arm == "main" else 15.0) * (1 + 0.01 * block)
    facts = {"experiment": EXPERIMENT, "arm": arm, "block": block, "order": block}
    run = with_record(a_run, id=new_id(), duration=duration, **facts)
    run["duration"] = run["duration"] * 0 + duration
    del run.attrs["duration"]
    return run


def write_plan(store, entries):
    folder = Path(store.path, "experiments", EXPERIMENT)
    folder.mkdir(parents=True)
    keys = ("order", "block", "variant", "arm", "deadline_s")
    plan = [dict(zip(keys, (i, *entry, 60.0), strict=True)) for i, entry in enumerate(entries)]
    words = {"command": f"ab main new {HOSTILE}"}
    (folder / "plan.json").write_text(json.dumps({"words": words, "arms": [], "plan": plan}))


def in_progress(store, a_run):
    """Fill a store: an experiment whose last run is being recorded, one hostile variant planned."""
    entries = [(block, "tests.sum", arm) for block in range(BLOCKS) for arm in ARMS]
    for block, _, arm in entries[:-1]:
        store.add(arm_run(a_run, arm, block))
    write_plan(store, [*entries, (0, HOSTILE, "main")])
    block, variant, arm = entries[-1]
    recording = Path(store.path, "tmp", "recordings", EXPERIMENT, f"{new_id()}.recording")
    recording.mkdir(parents=True)
    head = {"block": block, "arm": arm, "workload": variant}
    (recording / "head.json").write_text(json.dumps(head))
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory, a_run):
    """Return a store that tests only read."""
    return in_progress(Store(tmp_path_factory.mktemp("links") / "store"), a_run)


@pytest.fixture(scope="module")
def site(store):
    with served(store.path) as url:
        yield url


@pytest.fixture
def own_store(tmp_path, a_run):
    """Return a store that a test may change."""
    return in_progress(Store(tmp_path / "store"), a_run)


@pytest.fixture
def following(own_store, page):
    """Yield the URL of a server that opens with the experiment in progress."""
    with served(own_store.path, "--follow", EXPERIMENT[:13], page=page) as url:
        yield url


@pytest.fixture
def own_site(own_store, page):
    with served(own_store.path, page=page) as url:
        yield url


def brush(page, plot):
    """Drag across a plot until the URL has a window: a visible plot may not handle events yet."""
    place = page.get_by_label(plot, exact=True)
    expect(place).to_be_visible()
    place.scroll_into_view_if_needed()
    for _ in range(8):
        page.wait_for_timeout(700)
        box = place.bounding_box()
        y = box["y"] + 0.5 * box["height"]
        page.mouse.move(box["x"] + 0.3 * box["width"], y)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], y, steps=5)
        page.mouse.up()
        page.wait_for_timeout(1500)
        if "from=" in page.url:
            return
    raise AssertionError(f"{page.url}: a drag across {plot!r} set no window")


def total_seconds(page):
    """Add up the thread-seconds of the groups that the table shows."""
    cells = page.locator(".tabulator-cell[tabulator-field='total (s)']").all_inner_texts()
    return sum(float(text.replace(",", "")) for text in cells)


def back(page, gone):
    page.go_back()
    page.wait_for_url(lambda url: gone not in url)
    page.wait_for_load_state()
    page.wait_for_function(READY)


@pytest.mark.browser
@pytest.mark.slow
def test_from_a_run_to_a_window_to_a_group_to_its_tasks_and_back(page, site, store, artifacts):
    run_id = store.ids()[0]
    open_page(page, f"{site}?view=run&id={run_id}")
    sees(page, "The whole run,")
    expect(page.locator(ROW).first).to_be_visible()
    whole = total_seconds(page)

    brush(page, "Where was the cluster's memory?")
    sees(page, " to ")
    assert 0 <= total_seconds(page) < whole
    told = page.get_by_text(re.compile(r" s of .* s: ")).inner_text()

    page.reload()
    page.wait_for_function(READY)
    expect(page.get_by_text(told)).to_be_visible()
    page.get_by_label("Memory of").select_option("worker 1")
    page.wait_for_url("**worker=*")
    page.get_by_role("button", name="Whole run").click()
    page.wait_for_url(lambda url: "from=" not in url)
    brush(page, "What were threads busy with?")

    page.get_by_label("Task group").select_option(index=1)
    page.wait_for_url("**group=*")
    assert "from=" in page.url
    page.screenshot(path=artifacts / "dashboard-window.png", full_page=True)
    page.get_by_role("link", name="its tasks").click()
    page.wait_for_url("**tab=tasks**")
    expect(page.get_by_label(re.compile("What did each thread do"))).to_be_visible()
    assert "group=" in page.url
    page.screenshot(path=artifacts / "dashboard-group.png", full_page=True)
    back(page, "tab=tasks")
    assert "group=" in page.url
    back(page, "group=")
    assert "from=" in page.url


@pytest.mark.browser
def test_a_click_on_a_row_chooses_its_group_also_when_the_table_is_sorted(page, site, store):
    open_page(page, f"{site}?view=run&id={store.ids()[0]}")
    page.locator(".tabulator-col[tabulator-field='total (s)'] .tabulator-col-title").click()
    page.wait_for_timeout(1500)
    name = page.locator(ROW).nth(0).inner_text()

    page.locator(ROW).nth(0).click()

    page.wait_for_url("**group=*")
    expect(page.locator("p b").first).to_be_visible()
    sees(page, "its tasks")
    assert page.locator("p b").all_inner_texts()[-1] == name

    page.get_by_role("link", name="its call stacks").click()
    page.wait_for_url("**tab=stacks**")
    page.get_by_role("link", name="its transfers").click()
    page.wait_for_url("**tab=transfers**")
    sees(page, "Fetched for")
    assert "group=" in page.url


@pytest.mark.browser
@pytest.mark.slow
def test_two_runs_of_the_list_and_of_a_comparison_stand_side_by_side(page, site, artifacts):
    open_page(page, f"{site}?view=runs")
    page.get_by_role("link", name=re.compile("^hold")).first.click()
    page.wait_for_url("**pick=*")
    page.get_by_role("link", name=re.compile("^take")).first.click()
    page.wait_for_url("**view=pair**")
    page.wait_for_function(READY)
    sees(page, "B − A")
    sees(page, "Key figures")

    open_page(page, f"{site}?view=compare&experiment={EXPERIMENT}")
    page.get_by_role("link", name="tests.sum: main and new").click()
    page.wait_for_url("**view=pair**")
    page.wait_for_function(READY)
    brush(page, "How much memory did each run use?")
    page.get_by_label("Task group").select_option(index=1)
    page.wait_for_url("**group=*")
    assert "from=" in page.url
    page.screenshot(path=artifacts / "dashboard-pair.png", full_page=True)


@pytest.mark.browser
@pytest.mark.slow
def test_an_experiment_in_progress_is_followed_until_it_ends(
    page, following, own_store, a_run, artifacts
):
    open_page(page, following)
    sees(page, "running")
    sees(page, "Now: tests.sum in new, block 2")
    sees(page, "Verdicts so far (interim)")
    sees(page, "<script>")
    page.screenshot(path=artifacts / "dashboard-follow.png", full_page=True)

    own_store.add(arm_run(a_run, "new", 2))
    own_store.add(with_record(arm_run(a_run, "main", 0), workload=HOSTILE))
    shutil.rmtree(Path(own_store.path, "tmp", "recordings", EXPERIMENT))

    expect(page.get_by_text("ended", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="Verdicts", exact=True)).to_be_visible()
    open_page(page, f"{following.partition('?')[0]}?view=follow&experiment=nothing")
    sees(page, "This cannot be followed")


@pytest.mark.browser
def test_a_file_beside_a_run_is_downloaded_and_never_a_page(page, own_site, own_store):
    run_id = own_store.ids()[0]
    folder = Path(own_store.path, "experiments", EXPERIMENT, "extras", run_id)
    folder.mkdir(parents=True)
    (folder / "performance-report.html").write_text(HOSTILE)
    (folder / "<img src=x onerror=window.hacked=1>.txt").write_text("x")

    open_page(page, f"{own_site}?view=run&id={run_id}&tab=facts")
    link = page.get_by_text(re.compile("^(Download )?performance-report.html"))
    with page.expect_download() as download:
        link.first.click()

    assert Path(download.value.path()).read_text() == HOSTILE


@pytest.mark.browser
def test_a_run_can_be_marked_only_where_the_server_allows_it(page, site, store, own_store):
    button = page.get_by_role("button", name="Write the mark")
    open_page(page, f"{site}?view=run&id={store.ids()[0]}")
    sees(page, "The whole run,")
    assert button.count() == 0

    with served(own_store.path, "--allow-marks", page=page) as url:
        open_page(page, f"{url}?view=run&id={own_store.ids()[0]}")
        sees(page, "The whole run,")
        button.click()
        sees(page, "needs a reason and an author")
        page.get_by_label("Reason").fill(HOSTILE)
        page.get_by_label("Author").fill("ann")
        page.wait_for_timeout(300)
        button.click()
        sees(page, "Marked as exclude")

    (mark,) = own_store.marks()
    assert (mark["kind"], mark["reason"], mark["runs"]) == (
        "exclude",
        HOSTILE,
        [own_store.ids()[0]],
    )


def test_without_the_flag_there_is_neither_a_form_nor_what_answers_it(monkeypatch, a_run):
    monkeypatch.delenv(marks.MARKS_VARIABLE, raising=False)

    assert marks.mark_run(Run(a_run)) == []
    assert marks.mark_series({"workload": "x", "environment": "e", "host": "h"}, "duration") == []


@pytest.mark.browser
@pytest.mark.slow
def test_tabs_and_the_window_are_reached_by_the_keyboard(page, site, store):
    open_page(page, f"{site}?view=run&id={store.ids()[0]}")
    sees(page, "The whole run,")
    page.locator(".bk-tab", has_text="Overview").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label(re.compile("What did each thread do"))).to_be_visible()

    first = page.get_by_label("From (s)")
    whole = float(first.input_value())
    first.fill(str(whole + 1))
    first.press("Enter")
    page.wait_for_url(lambda url: "from=" in url and "tab=tasks" in url)
    first.fill("1e9")  # after the end
    first.press("Enter")
    expect(first).to_have_value(f"{whole + 1:.3f}")


@pytest.mark.browser
def test_the_tasks_of_a_group_are_told_by_their_keys(page, site, store):
    run_id = store.ids()[0]
    run = store.open(run_id)
    frame = run.task_stream()
    frame["key"] = run.task_keys()
    mine = frame[frame["duration"].notna()]
    mine = mine[mine["task_group"] == mine["task_group"].iloc[0]]
    group = str(mine["task_group"].iloc[0])
    longest = mine.sort_values("duration", kind="stable").iloc[-1]
    assert run.task_keys(frame.index[:3].to_numpy()) == list(frame["key"][:3])

    open_page(page, f"{site}?view=run&id={run_id}&tab=tasks&group={quote(group)}")
    sees(page, "The longest")
    row = page.locator("tr", has=page.locator("td code")).first
    expect(row).to_contain_text(str(longest["key"]))
    expect(row).to_contain_text(f"{longest['duration']:.4f}")


@pytest.mark.browser
def test_two_selections_are_compared_from_a_form(page, site):
    open_page(page, f"{site}?view=compare")
    for label, example in zip(("Baseline", "Contender"), EXAMPLES, strict=True):
        assert page.get_by_label(label).get_attribute("placeholder") == example
        assert parse_selection(example)["environment"] == "main"
    page.get_by_label("Baseline").fill("environment:main")
    page.get_by_label("Contender").fill("environment:nobody")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(lambda url: "contender=environment%3Anobody" in url)
    page.wait_for_function(READY)
    sees(page, "This cannot be compared")


@pytest.mark.browser
def test_the_page_of_logins_asks_nobody_outside(page, store, tmp_path):
    (tmp_path / "users.json").write_text(json.dumps({"ada": "secret"}))
    options = ("--basic-auth", str(tmp_path / "users.json"), "--cookie-secret", "s" * 32)
    with served(store.path, *options, page=page) as url:
        page.goto(url)  # the fixture rejects requests to other machines
        page.get_by_label("User").fill("ada")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        sees(page, "Invalid username or password")
        page.get_by_label("User").fill("ada")
        page.get_by_label("Password").fill("secret")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_function(READY)
        sees(page, "tests.sum")


def test_a_part_that_fails_is_told_and_the_rest_of_the_page_stands():
    content = []

    def damaged():
        raise KeyError("<b>group</b>")

    # Use another thread: while a Playwright browser is open, this one has a running event loop.
    with ThreadPoolExecutor(1) as other:
        found = other.submit(asyncio.run, _found(damaged, "The causes cannot be told", content))
        assert found.result() is None
        found = other.submit(asyncio.run, _found(lambda: 3, "What differs cannot be told", content))
        assert found.result() == 3
    (told,) = content
    assert "The causes cannot be told" in told.object
    assert "KeyError" in told.object
    assert "<b>group" not in told.object


OAUTH = "--oauth-provider github --oauth-key k --oauth-secret s --cookie-secret c".split()


def test_only_named_accounts_may_come_by_what_the_provider_vouches_for():
    may_come = only_these(["Ada", "grace@example.org"])

    assert may_come({"login": "ada"})
    assert may_come({"login": "gh", "email": "Grace@example.org"})
    assert not may_come({"login": "mallory", "name": "Ada"})
    assert not may_come({"login": "", "email": None})
    assert not may_come(None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--allow-marks", "--allow-websocket-origin", "bench.example.org"], "origin lets anybody"),
        (["--allow-marks", "--address", "0.0.0.0"], "anybody write into the store"),
        (["--oauth-provider", "github", "--oauth-key", "k"], "--oauth-secret is missing"),
        (["--oauth-key", "k"], "--oauth-provider is missing"),
        (["--oauth-user", "me"], "--oauth-provider, which is missing"),
        ([*OAUTH, "--allow-marks"], "name those who may by --oauth-user"),
    ],
)
def test_servers_that_anybody_could_write_to_or_nobody_log_in_to_are_refused(
    store, options, message
):
    from click.testing import CliRunner

    done = CliRunner().invoke(command, ["dashboard", "--store", str(store.path), *options])

    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.browser
def test_the_pieces_of_a_run_stay_in_an_exported_notebook(page, tmp_path, a_run):
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    from benchkit.show.reports.html import notebook_page

    shown = new_output("display_data", data=Run(a_run).panel()._repr_mimebundle_())
    nbformat.write(
        new_notebook(cells=[new_code_cell("run.panel()", outputs=[shown])]), tmp_path / "n.ipynb"
    )
    asked = []
    page.on("request", lambda request: asked.append(request.url))

    page.goto(notebook_page(tmp_path / "n.ipynb", tmp_path / "n.html", title="n").as_uri())

    plot = page.frame_locator("iframe").get_by_label("Where was the cluster's memory?")
    expect(plot).to_be_visible()
    assert len(asked) == 1


def test_a_brush_is_answered_by_all_that_follows(a_run):
    """Measure the server's part of a brush; the time is printed only, not asserted."""
    from benchkit.analysis.run.timeline import TaskTimeline
    from benchkit.show.dashboard.run.page import pieces
    from benchkit.show.dashboard.state.time_window import Window

    tree = many_tasks(a_run, 100_000)
    window = Window(Run(tree), TaskTimeline(tree), {"tab": "tasks"})
    pieces(window)
    left, right = window.whole

    began = time.perf_counter()
    window.range.update(start=left + 0.4 * (right - left), end=left + 0.6 * (right - left))
    print(f"brush over {window.within.n_tasks} tasks: {time.perf_counter() - began:.3f} s")

    assert window.part == pytest.approx(
        (left + 0.4 * (right - left), left + 0.6 * (right - left)), rel=1e-6
    )
