"""The same words and numbers of a page by every renderer."""

import html
import re

import numpy as np
import pandas as pd
import pytest

from benchkit.analysis.regression.history import build_history, night_name
from benchkit.experiment.nightly.night import night_of
from benchkit.show.pages import night as night_pages
from benchkit.show.pages.history import WorkloadNights
from benchkit.show.pages.history import page as workload_page
from benchkit.show.pages.night import NightSeries
from benchkit.show.pages.page import Spark, Table, Text, site_address
from benchkit.show.render import html as html_renderer
from benchkit.show.render import markdown, panel
from validation.dashboard_server import text_of
from validation.run_records import run_record

N_NIGHTS = 60
#: Workload -> factor of the last night, night from which the level is lower, event of the night.
CASES = {
    "a.dismissed": (1.15, 0, "dismissed"),
    "a.set_aside": (1.15, 0, "set_aside"),
    "a.one_night": (1.15, 0, None),
    "a.better_10_nights_ago": (1.0, 10, None),
    "a.better_3_nights_ago": (1.0, 3, None),
    "a[k=<b>|1]": (1.0, 0, None),
}


@pytest.fixture(scope="module")
def history():
    rng = np.random.default_rng(0)
    rows = []
    for name, (last, since, _) in CASES.items():
        values = 10 * np.exp(0.01 * rng.standard_normal(N_NIGHTS))
        values[-1] *= last
        if since:
            values[-since:] *= 0.8
        rows += [
            run_record(n, workload=name, environment="tip", duration=value, outcome="ok")
            for n, value in enumerate(values)
        ]
    failed = {"outcome": "failed", "error": "ValueError: a < b | c", "duration": np.nan}
    rows.append(run_record(N_NIGHTS - 1, workload="a.never_ok", environment="tip", **failed))
    return build_history(pd.DataFrame(rows), metrics=["duration"])


@pytest.fixture(scope="module")
def events(history):
    night = night_name(history.times[-1])
    about = {row["workload"]: row for row in history.series.to_dict("records")}
    fields = ("workload", "environment", "host", "scale", "capture", "metric")
    return [
        {"kind": kind, "seen": night, "night": night, "id": name, "ratio": last,
         "reason": f"{kind}: a <reason>", **{field: about[name][field] for field in fields}}
        for name, (last, _, kind) in CASES.items() if kind
    ]  # fmt: skip


@pytest.fixture(scope="module")
def page(history, events):
    night = night_of(history, None, events, [])
    night.add_failure("site: disk full")
    series = NightSeries.judge(history, "duration", events, [])
    return night_pages.page(night, [series], {"show": "all"})


def words_of_page(page):
    """Return each word that a page says, in order."""
    texts = [page.title, *page.lines]
    for section in page.sections:
        texts += [section.title, section.note]
        if isinstance(section.content, Table):
            for row in section.content.rows:
                for cell in row.cells:
                    texts += texts_of_cell(cell)
        else:
            texts += [text for each in section.content for text in texts_of_cell(each)]
    return " ".join(texts).split()


def texts_of_cell(cell):
    if isinstance(cell, Spark):
        return []
    if isinstance(cell, str):
        return [cell]
    return [text for each in ([cell] if isinstance(cell, Text) else cell)
            for text in (each.text, each.small)]  # fmt: skip


def words_of_html(text):
    # Left out: heads of tables, explanations of columns, filters and the copies they choose from.
    left_out = "|".join(f"<{tag}.*?</{tag}>" for tag in ("thead", "details", "template", "label"))
    text = re.sub(left_out, " ", text, flags=re.S)
    return html.unescape(re.sub("<[^>]*>", " ", text.replace("<wbr>", ""))).split()


def words_of_markdown(text):
    tables = re.sub(r"^\|.*\n\| ?-.*$", "", text, flags=re.M)
    plain = tables.replace("\\|", "\x00").replace("|", " ").replace("\x00", "|")
    plain = re.sub(r"^(#+|-) ", "", plain, flags=re.M).replace("<br>", " ")
    return html.unescape(re.sub(r"\\(.)", r"\1", plain)).replace("\u200b", "").split()


def test_night_has_the_same_words_and_numbers_by_every_renderer(page):
    wanted = words_of_page(page)
    parts = panel.page_parts(page, lambda target: None)

    assert "a[k=<b>|1]" in wanted
    assert words_of_html(" ".join(text_of(part) for part in parts)) == wanted
    assert words_of_html(html_renderer.page_markup(page, lambda target: None)) == wanted
    assert words_of_markdown(markdown.page_markdown(page)) == wanted


def test_night_states_are_those_of_the_ledger(history, events):
    statuses = NightSeries.judge(history, "duration", events, []).statuses
    labels = {status.about["workload"]: status.label for status in statuses}

    assert labels["a.dismissed"] == "unchanged, measured twice"
    assert labels["a.set_aside"] == "set aside: machine changed"
    assert labels["a.one_night"] == "unsure: one night"
    assert labels["a.never_ok"] == "failed, never ok"


def test_workload_page_has_changes_and_figures(history):
    data = WorkloadNights("a.better_10_nights_ago", history.select(
        workload="a.better_10_nights_ago"), [], [])  # fmt: skip
    page = workload_page(data)
    text = html_renderer.page_markup(page, lambda target: site_address("../", target))

    (change,) = next(s for s in page.sections if s.title == "What changed, and when?").content.rows
    assert change.cells[1].text.startswith("▼ −2")
    assert text.count('class="figure"') == 2  # shown, and to choose
