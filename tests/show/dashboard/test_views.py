"""Workloads and environments in a real browser, and the accessibility of every view."""

import json
import re
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from axe_playwright_python.sync_playwright import Axe
from helpers.dashboards import served
from playwright.sync_api import expect

from benchkit.analysis.run.noise import run_noise
from benchkit.measure.run_ids import derived_id, new_id
from validation.dashboard_server import HOSTILE, READY, sees, with_record
from validation.history_data import FAILING, NEW, SLOWER, fill

NIGHTS = 30
EXPERIMENT = new_id()
#: Accepted violations of accessibility rules: rule -> reason.
EXCEPTIONS: dict[str, str] = {}


@pytest.fixture(scope="module")
def store(tmp_path_factory, a_run):
    store = fill(tmp_path_factory.mktemp("views") / "store", a_run, n_nights=NIGHTS)
    packages = json.loads(a_run.attrs["packages"])
    for day, (environment, version, stealing) in enumerate(
        [("pinned", "1.0", True), ("pinned", "2.0", True), (HOSTILE, "2.0", False)]
    ):
        when = pd.Timestamp("2026-11-10T12:00", tz="UTC") + pd.Timedelta(days=day)
        run = with_record(
            a_run,
            id=derived_id(when.timestamp(), environment),
            started=when.isoformat(timespec="microseconds"),
            workload="tests.sum",
            environment=environment,
            packages_hash=f"hash-{version}",
        )
        config = json.loads(run.attrs["config"])
        config["distributed"]["scheduler"]["work-stealing"] = stealing
        run.attrs["packages"] = json.dumps({**packages, "toolz": version, HOSTILE: "1"})
        run.attrs["config"] = json.dumps(config)
        run.attrs["source"] = f"def sum(client):\n    return {HOSTILE!r}"
        run.attrs["description"] = f"Stresses nothing. {HOSTILE}"
        store.add(run)
    for block in range(2):
        for arm, factor in (("main", 1.0), (HOSTILE, 1.5)):
            store.add(hostile_run(a_run, arm, block, factor))
    return store


def hostile_run(a_run, arm, block, factor):
    """Return a run of an experiment with hostile text everywhere: arm, workload, groups, tags."""
    duration = 10.0 * factor * (1 + 0.01 * block)
    facts = {"experiment": EXPERIMENT, "arm": arm, "block": block, "order": block}
    about = {"workload": f"tests.{HOSTILE}", "tags": json.dumps({"a'\"": HOSTILE})}
    run = with_record(a_run, id=new_id(), duration=duration, **facts, **about)
    run["duration"] = run["duration"] * 0 + duration
    del run.attrs["duration"]
    groups = run["task_groups"].to_dataset()
    names = [f"{HOSTILE}{name}" for name in groups["task_group"].values]
    run["task_groups"] = xr.DataTree(groups.assign_coords(task_group=names))
    return run


@pytest.fixture(scope="module")
def site(store):
    with served(store.path) as url:
        yield url


def test_run_noise_ignores_level_shift():
    rng = np.random.default_rng(0)
    values = 10 * rng.lognormal(0, 0.03, 400)
    values[200:] *= 2
    runs = pd.DataFrame(
        {
            "workload": "array.sum",
            "outcome": "ok",
            "started": pd.date_range("2026-01-01", periods=400, tz="UTC"),
            "duration": values,
            "comparable": True,
        }
    )

    (row,) = run_noise(runs).to_dict("records")
    few = run_noise(runs.head(4))

    assert row["noise"] == pytest.approx(0.03, rel=0.2)
    assert row["needed_2"] > row["needed_5"] > row["needed_10"] >= 2
    assert np.isnan(few["noise"].iloc[0])
    assert few["needed_5"].iloc[0] == 0
    assert run_noise(runs.iloc[:0]).empty


@pytest.mark.browser
def test_workloads_list_links_to_workload_and_environment(page, site, artifacts):
    page.goto(f"{site}?view=workloads")
    expect(page.get_by_role("heading", level=1)).to_have_text("10 workloads measured")
    expect(page.get_by_text(re.compile(r"\d+ never measured \(\d+ hidden\)"))).to_be_visible()
    assert page.locator("tbody tr").count() == 10
    row = page.locator("tbody tr").filter(has_text=SLOWER)
    expect(row).to_contain_text(re.compile(r"regressed.*± \d"))
    young = page.locator("tbody tr").filter(has_text=NEW)
    expect(young).to_contain_text("too few nights")
    page.screenshot(path=artifacts / "dashboard-workloads.png", full_page=True)

    page.get_by_label("Order").select_option(label="failures, most first")
    page.wait_for_url("**order=failures**")
    expect(page.locator("tbody tr").first).to_contain_text(re.compile(r"\(\d+\.\d %\)"))
    page.get_by_label("Show").select_option(label="never measured")
    page.wait_for_url("**show=never**")
    expect(page.get_by_text(re.compile(r"10 .*\(10 hidden\)"))).to_be_visible()
    page.go_back()
    page.wait_for_function(READY)
    page.get_by_text("What the columns mean").click()
    expect(page.get_by_text("wall time of the workload; seconds").first).to_be_visible()

    page.get_by_role("link", name=FAILING, exact=True).click()
    page.wait_for_url("**name=frame.join_big**")
    expect(page.get_by_role("heading", name="Noise and detectable changes")).to_be_visible()
    page.wait_for_function(READY)
    page.screenshot(path=artifacts / "dashboard-workload.png", full_page=True)
    page.get_by_role("link", name="release", exact=True).first.click()
    page.wait_for_url("**view=environments&name=release")
    expect(page.get_by_role("heading", level=1)).to_have_text("release")
    expect(page.get_by_text(re.compile(r"dask 2026.7.0 → 2026.8.0"))).to_be_visible()


@pytest.mark.browser
def test_environment_page_shows_package_changes(page, site, artifacts):
    page.goto(f"{site}?view=environments")
    expect(page.get_by_role("heading", level=1)).to_have_text("5 environments")
    page.get_by_role("link", name="pinned", exact=True).click()

    page.wait_for_url("**name=pinned")
    expect(page.get_by_text("toolz 1.0 → 2.0", exact=True)).to_be_visible()
    expect(page.get_by_text("toolz 2.0", exact=True)).to_be_visible()
    page.screenshot(path=artifacts / "dashboard-environment.png", full_page=True)
    page.get_by_role("link", name="compare the runs of builds").click()
    page.wait_for_url("**view=compare**")
    sees(page, "env:pinned,build:hash-2.0 against env:pinned,build:hash-1.0")
    page.go_back()
    page.get_by_role("link", name=f"pinned and {HOSTILE}").click()

    page.wait_for_url("**with=**")
    expect(page.get_by_text("distributed.scheduler.work-stealing")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="package")).to_have_count(0)
    page.screenshot(path=artifacts / "dashboard-environments.png", full_page=True)
    page.get_by_label("Other").select_option(label="main")
    page.wait_for_url("**with=main**")
    expect(page.get_by_role("row").filter(has_text="toolz")).to_be_visible()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("view=workloads&name=array.nothing", "No such workload"),
        ("view=workloads&name=array.vorticity", "Parameters are bound when a workload runs"),
        ("view=workloads&find=nothing-like-it&metric=nonsense", "Nothing to show"),
        ("view=workloads&name=tests.sum", "Stresses nothing."),
        ("view=environments&name=<b>none", "No such environment"),
        ("view=environments&name=main&with=main", "The same environment"),
    ],
)
def test_invalid_list_addresses_show_message(page, site, address, message):
    page.goto(f"{site}?{address}")

    expect(page.get_by_text(message).first).to_be_visible()


def axe(page, **options):
    """Return the accessibility violations of a page only: the passed rules are megabytes."""
    return (
        Axe().run(page, options={"resultTypes": ["violations"], **options}).response["violations"]
    )


@pytest.mark.browser
@pytest.mark.slow
def test_views_pass_axe_with_hostile_text(browser, site, store, artifacts):
    runs = store.runs()
    # The newest runs have hostile text everywhere.
    before, run = runs.loc[runs["experiment"] == EXPERIMENT, "id"].iloc[-2:]
    hostile = f"experiment={EXPERIMENT}&workload={quote(f'tests.{HOSTILE}')}&arm={quote(HOSTILE)}"
    workload = SLOWER.replace("[", "%5B").replace("]", "%5D")
    addresses = [
        "view=overview", f"view=history&workload={workload}", "view=runs", "view=compare",
        "view=follow",
        f"view=compare&experiment={EXPERIMENT}", f"view=compare&{hostile}",
        f"view=pair&a={before}&b={run}",
        "view=workloads", f"view=workloads&name={workload}", "view=environments",
        "view=environments&name=main", "view=environments&name=main&with=pinned", "view=nothing",
        *(f"view=run&id={run}&tab={tab}"
          for tab in ("overview", "tasks", "memory", "stacks", "transfers", "machines", "trouble",
                      "facts")),
    ]  # fmt: skip
    context = browser.new_context(viewport={"width": 1300, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(60_000)
    violations = []
    for number, address in enumerate(addresses):
        page.goto(f"{site}?{address}")
        page.wait_for_function(READY)
        page.wait_for_timeout(200)
        assert page.evaluate("window.hacked") is None, address
        view = f"{number:02d}-{'-'.join(re.findall(r'(?:view|tab)=([a-z]+)', address))}"
        page.screenshot(path=artifacts / f"view-{view}.png", full_page=True)
        # The dark theme changes only colours, so check only the contrast.
        for theme, options in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.emulate_media(color_scheme=theme)
            for violation in axe(page, **options):
                if (
                    violation["impact"] in ("serious", "critical")
                    and violation["id"] not in EXCEPTIONS
                ):
                    places = [node["html"][:120] for node in violation["nodes"][:3]]
                    violations.append((theme, address, violation["id"], places))
    context.close()

    assert violations == []
