"""The same words and numbers of a page by every renderer."""

import html
import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import panel as pn
import pytest

from benchkit import pages
from benchkit.analysis.compare.compare_runs import compare
from benchkit.analysis.compare.explain import CauseChanges, ExplainedChange, explain
from benchkit.analysis.regression.history import build_history, night_name
from benchkit.errors import UsageError
from benchkit.experiment.nightly.night import night_of
from benchkit.show.dashboard.run.page import LiveSection
from benchkit.show.dashboard.state.time_window import PairWindow, Window
from benchkit.show.pages import comparison as comparison_pages
from benchkit.show.pages import night as night_pages
from benchkit.show.pages import pair as pair_pages
from benchkit.show.pages import run as run_pages
from benchkit.show.pages.history import WorkloadNights
from benchkit.show.pages.history import page as workload_page
from benchkit.show.pages.night import NightSeries
from benchkit.show.pages.page import (
    Bar,
    Figure,
    Interval,
    Page,
    Row,
    Section,
    Spark,
    Table,
    Text,
    site_address,
)
from benchkit.show.render import html as html_renderer
from benchkit.show.render import markdown, notebook, panel
from benchkit.store.run import Run
from benchkit.store.store import Store
from validation.arm_runs import arm_runs
from validation.dashboard_server import text_of
from validation.run_records import run_record
from validation.run_trees import run_tree

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
    texts = [page.title, page.state.text, *page.lines]
    return words_of_texts([*texts, *(each for s in page.sections for each in texts_of_section(s))])


def words_of_texts(texts):
    return " ".join(texts).replace("`", "").split()  # the mark of code is no part of a word


def texts_of_section(section):
    texts = []
    for content in section.contents():
        if isinstance(content, Table):
            texts += [text for row in content.rows for cell in row.cells
                      for text in texts_of_cell(cell)] or [content.empty]  # fmt: skip
        elif not isinstance(content, Figure):
            texts += [text for each in content for text in texts_of_cell(each)]
    return [section.title, section.note, *texts] if section.contents() else []


def texts_of_cell(cell):
    if isinstance(cell, Spark | Bar | Interval):
        return []
    if isinstance(cell, str):
        return [cell]
    return [text for each in ([cell] if isinstance(cell, Text) else cell)
            for text in (each.text, each.small)]  # fmt: skip


def words_of_html(text):
    # Left out: heads of tables, explanations of columns, filters and the copies they choose from.
    tags = ("thead", "details", "template", "label", "svg", "style", "script")
    left_out = "|".join(f"<{tag}\\b.*?</{tag}>" for tag in tags)
    text = re.sub(left_out, " ", text, flags=re.S)
    text = re.sub("</?code>", "", text.replace("<wbr>", ""))
    return words_of_texts([html.unescape(re.sub("<[^>]*>", " ", text))])


def words_of_markdown(text):
    # Parts with odd numbers are code.
    parts = enumerate(re.split(r"^```.*\n?", text, flags=re.M))
    return [
        word
        for at, part in parts
        for word in (words_of_texts([part]) if at % 2 else plain_words(part))
    ]


def plain_words(text):
    tables = re.sub(r"^\|.*\n\| ?-.*$", "", text, flags=re.M)
    plain = tables.replace("\\|", "\x00").replace("|", " ").replace("\x00", "|")
    plain = re.sub(r"^(#+|-) ", "", plain, flags=re.M).replace("<br>", " ")
    plain = html.unescape(re.sub(r"\\(.)", r"\1", plain)).replace("\u200b", "")
    return words_of_texts([plain])


def test_night_has_the_same_words_and_numbers_by_every_renderer(page):
    wanted = words_of_page(page)
    parts = panel.page_parts(page, lambda target: None)

    assert "a[k=<b>|1]" in wanted
    assert words_of_html(" ".join(text_of(part) for part in parts)) == wanted
    assert words_of_html(html_renderer.page_markup(page, lambda target: None)) == wanted
    assert words_of_markdown(markdown.page_markdown(page)) == wanted


def test_backquoted_parts_of_sentences_are_code():
    table = Table(["a"], [Row(["`name`"])], terms={"a": "as `term` says"})
    sections = [Section("Why?", [Text("see `text`"), Text("or `note`", "soft")]),
                Section("What?", table, "as `below` says")]  # fmt: skip
    page = Page("night", ["run `benchkit <ab>`"], sections)
    shown = [
        html_renderer.page_markup(page, lambda target: None),
        " ".join(text_of(part) for part in panel.page_parts(page, lambda target: None)),
    ]

    for text in shown:
        found = re.findall("<code>(.*?)</code>", text)
        assert found == ["benchkit &lt;ab&gt;", "text", "note", "below", "term"]
        assert "`name`" in text, "names are shown literally"


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


#: Workloads whose names have a meaning in HTML and in Markdown.
NAMES = ["x.w0", "x.w1[k=<b>|1]", "x.w2_a*b*", "y.w3"]


@pytest.fixture(scope="module")
def compared():
    begin = pd.Timestamp("2026-11-01")
    facts = {"workloads": NAMES, "noise": 0.01, "started": begin, "host": "h"}
    quality = '{"duration": "disturbed"}'
    change = {"x.w1[k=<b>|1]": 1.3, "x.w2_a*b*": 0.011}
    arms = {
        "new": arm_runs("new", seed=1, change=change, **facts),
        "new|2": arm_runs("new|2", seed=2, quality=quality, **facts),
    }
    baseline, null = arm_runs("A", **facts), arm_runs("null", seed=3, **facts)
    comparison = compare(baseline, arms, null=null, names=("A", "contender"))
    return comparison_pages.ComparedRuns(comparison, pd.concat([baseline, *arms.values(), null]))


@pytest.fixture(scope="module")
def explained():
    before = [run_tree({"sum": (10, 2), "load": (4, 0)}, 10.0)] * 3
    after = [run_tree({"sum": (10, 12), "load": (6, 0)}, 16.5, peak=(9, 2, 3, 4))] * 3
    return explain(before, after)


def every_section(data, explained):
    """Return a page with all sections that a comparison can have."""
    page = comparison_pages.page(data, {})
    arm = {"environment": {"dask": {"a": "<b>"}}, "name": "new", "point": {"param.k": 1}}
    plan = {"id": "e1", "plan": [0] * 80, "order": "abba", "words": {"command": "ab A <b>"},
            "arms": [{**arm, "name": "A"}, arm]}  # fmt: skip
    changed = ExplainedChange("x.w1[k=<b>|1]", "new", explained)
    table = pd.DataFrame([["package", "dask", "1", "<2>"]],
                         columns=["kind", "name", "baseline", "contender"])  # fmt: skip
    return Page(page.title, page.lines, [
        *page.sections,
        *comparison_pages.figures(data.comparison, plan=plan),
        *comparison_pages.causes([changed]),
        *comparison_pages.differences("A", {"new": table}),
        *comparison_pages.explanation(
            data, explained, *changed[:2], [{"sum": "sum-0123"}, {"sum": "sum-4567"}]),
        comparison_pages.arms(plan), comparison_pages.facts(plan, data.runs),
        comparison_pages.outcomes(data.runs),
    ])  # fmt: skip


def test_comparison_has_the_same_words_and_numbers_by_every_renderer(compared, explained):
    page = every_section(compared, explained)
    texts = [s for s in page.sections if not isinstance(s.content, Figure)]
    parts = panel.page_parts(page, lambda target: None)
    wanted = words_of_page(page)

    assert {"x.w1[k=<b>|1]", "slower", "+30", "disturbed"} <= set(wanted)
    assert words_of_html(" ".join(text_of(part) for part in parts)) == wanted
    assert words_of_html(html_renderer.page_markup(page, lambda target: None)) == wanted
    page = Page(page.title, page.lines, texts)
    assert words_of_markdown(markdown.page_markdown(page)) == words_of_page(page)


def test_comparison_in_a_notebook_is_its_page(compared, monkeypatch):
    wanted = words_of_page(comparison_pages.page(compared, {}))

    assert words_of_html(compared.comparison._repr_html_()) == wanted
    monkeypatch.setattr("benchkit.analysis.compare.comparison.entry_points", lambda **_: ())
    assert compared.comparison._repr_html_() is None, "without packages that draw: its text"


def cells_of(section):
    """Return the rows of a table as texts by column."""
    return [
        {name: " ".join(texts_of_cell(cell)).strip()
         for name, cell in zip(section.content.columns, row.cells, strict=True)}
        for row in section.content.rows
    ]  # fmt: skip


def test_verdicts_are_those_of_the_comparison_with_limits_and_factors(compared):
    rows = cells_of(comparison_pages.page(compared, {"metric": "duration"}).sections[0])
    row = {(each["workload"], each["contender"]): each for each in rows}

    assert "metric" not in rows[0]
    assert row["x.w2_a*b*", "new"]["change"] == "−99 %"
    assert row["x.w2_a*b*", "new"]["verdict"].startswith("▼ about 9")
    assert row["x.w1[k=<b>|1]", "new"]["verdict"] == "▲ slower"
    assert row["y.w3", "new"]["runs"] == "10 + 5"
    assert row["y.w3", "new|2"]["runs"] == "10 + 5, 5 disturbed"


def test_small_figures_agree_with_the_test(compared):
    """A mark is inside the grey band exactly if the interval of the test contains no change."""
    (section,) = comparison_pages.verdict_sections(compared, {})
    column = section.content.columns.index("less · more")
    bars = [row.cells[column] for row in section.content.rows]
    rows = compared.comparison.frame.to_dict("records")

    assert {bar.tone for bar in bars} == {"bad", "good", ""}
    for bar, row in zip(bars, rows, strict=True):
        is_inside = bar.noise[0] < bar.value < bar.noise[1]
        assert is_inside == (row["low"] < 1 < row["high"])
        assert (bar.value > bar.zero) == (row["ratio"] > 1)
        assert not (is_inside and row["changed"])
        assert 0 <= bar.value <= 1


@pytest.mark.parametrize(
    ("order", "first"), [("", "x.w1[k=<b>|1]"), ("name", "x.w0"), ("noise", "x.w2_a*b*")]
)
def test_verdicts_are_in_the_order_of_the_address(compared, order, first):
    (section, *_) = comparison_pages.verdict_sections(compared, {"order": order})

    assert cells_of(section)[0]["workload"] == first


def test_verdicts_match_the_filters(compared):
    state = {"metric": "duration", "verdict": "worse", "category": "x", "find": "W1 K"}
    section, *_ = comparison_pages.verdict_sections(compared, state)

    assert [row["workload"] for row in cells_of(section)] == ["x.w1[k=<b>|1]"]
    assert section.note.startswith("Hidden by the filters: ")
    section, *_ = comparison_pages.verdict_sections(compared, {"find": "nowhere"})
    assert section.content.empty == "No row matches the filters."


def test_change_lists_parts_memory_and_runs(compared, explained):
    sections = comparison_pages.explanation(
        compared, explained, "x.w0", "new", [{"sum": "sum-0123"}, {"sum": "sum-4567"}]
    )
    by_title = {section.title: section for section in sections}
    parts = by_title["How much time is each part?"].content.rows
    (part,) = [row for row in parts if texts_of_cell(row.cells[0])[0] == "transfer in sum"]
    runs = by_title["Which runs are these?"].content.rows
    kinds = cells_of(by_title["Where did the memory go?"])

    assert part.cells[0].target.keys == {"a": "A-x.w0-0", "b": "new-x.w0-0", "group": "sum"}
    assert [part.cells[i].target.keys["group"] for i in (3, 4)] == ["sum-0123", "sum-4567"]
    assert runs[1].cells[-1].target.keys == {"a": "A-x.w0-1", "b": "new-x.w0-0"}
    assert runs[6].cells[-1].target.keys == {"a": "A-x.w0-0", "b": "new-x.w0-1"}
    assert kinds[0] == {"kind": "managed", "difference": "+8 B", "interval": "+8 B to +8 B",
                        "baseline": "1 B", "contender": "9 B"}  # fmt: skip


def test_change_lists_what_the_runs_waited_for(compared, explained):
    causes = pd.DataFrame(
        {"cause": ["transfer"], "group": ["sum"], "seconds": [1.25], "low": [1.0], "high": [1.5],
         "baseline_s": [0.5], "contender_s": [1.75]}
    )  # fmt: skip
    bounds = pd.DataFrame({"baseline_s": {"work": 1.0}, "contender_s": {"work": 1.0}})
    found = replace(explained, causes=CauseChanges(causes, bounds))
    sections = comparison_pages.explanation(compared, found, "x.w0", "new", [{}, {}])
    (waits,) = [s for s in sections if s.title == "What did the runs wait for?"]

    assert cells_of(waits) == [
        {"cause": "waiting for transfers", "mostly in": "sum", "difference": "+1.25 s",
         "interval": "+1.00 s to +1.50 s", "baseline": "500 ms", "contender": "1.75 s"}
    ]  # fmt: skip


def test_experiments_count_disturbed_runs(compared):
    page = comparison_pages.experiments(compared.runs)

    assert cells_of(page.sections[0]) == [
        {"started (UTC)": "2026-11-01 00:00", "arms": "new, new|2 against A", "workloads": "4",
         "runs": "80", "not ok": "0", "disturbed": "20"}
    ]  # fmt: skip
    assert comparison_pages.experiments(compared.runs.iloc[:0]).sections == []


@pytest.fixture(scope="module")
def run_data(tmp_path_factory, a_run):
    store = Store(tmp_path_factory.mktemp("run-page") / "store")
    return run_pages.RunData.read(store.open(store.add(a_run)))


#: Sections whose code is folded away in HTML.
FOLDED = {"specifications"}


def words_of_panes(view):
    """Return each word of the panes and tables of a view, in order."""
    texts = []
    for part in view.select(lambda each: isinstance(each, pn.pane.HTML | pn.widgets.Tabulator)):
        if isinstance(part, pn.pane.HTML):
            texts += words_of_html(str(part.object))
        else:
            rows = part.value.to_numpy().tolist()
            texts += [word for row in rows for cell in row for word in words_of_html(cell)]
    return texts


def words_of_notebook(section, monkeypatch):
    """Return each word that a cell of a notebook shows, in order."""
    shown = []
    monkeypatch.setattr(notebook, "display", lambda each, **options: shown.append(each))
    section._ipython_display_()
    return words_of_html(" ".join(each.data for each in shown if hasattr(each, "data")))


def assert_same_words(section, window, make):
    """Compare a section by every renderer but that of notebooks; return its words."""
    wanted = words_of_texts(texts_of_section(section))
    assert words_of_markdown(markdown.section_markdown(section)) == wanted, section.key
    if section.key not in FOLDED:
        text = html_renderer.section_markup(section, lambda target: None)
        assert words_of_html(text) == wanted, section.key
        view = LiveSection(window, make, section.key).view
        if not getattr(section.content, "is_slow", False):  # drawn after the page
            assert words_of_panes(view) == wanted, section.key
    return wanted


def test_run_has_the_same_words_and_numbers_by_every_renderer(run_data, monkeypatch):
    window = Window(run_data.run, run_data.timeline, {})
    page = run_pages.page(run_data, window.state())
    in_notebook = pages.run(run_data.run)
    seen = {}
    for section in page.sections:
        wanted = assert_same_words(section, window, partial(run_pages.sections, run_data))
        seen[section.key] = len(wanted)
        if section.key not in FOLDED:
            cell = words_of_notebook(in_notebook[section.key], monkeypatch)
            assert cell == (wanted or words_of_empty(section)), section.key

    assert seen["limits"]
    assert seen["groups"] > 10
    assert {"longest", "fetched"} <= {key for key, count in seen.items() if not count}


def test_pair_has_the_same_words_and_numbers_by_every_renderer(run_data, a_run):
    other = run_pages.RunData(Run(a_run), *run_pages.read_timeline(a_run))
    data = pair_pages.PairData(run_data, other)
    window = PairWindow(data, {})
    page = pair_pages.page(data, window.state())

    seen = [
        assert_same_words(section, window, partial(pair_pages.sections, data))
        for section in page.sections
    ]

    assert page.title == run_data.run.workload
    assert all(seen)
    assert "B − A (s)" in page["groups"].contents()[0].columns
    assert len([each for each in page.sections if each.filters()]) == 3


def words_of_empty(section):
    return f"{section.title} {section.note} Nothing was recorded.".split()


def test_run_head_has_the_same_words_and_numbers_by_every_renderer(run_data):
    page = run_pages.page(run_data, {})
    wanted = {text for each in page.figures for text in (each.value, each.name)}
    wanted |= {page.title, page.state.text, *filter(None, page.lines)}
    texts = [
        html_renderer.head_markup(page),
        panel.head(page).object,
        pages.run(run_data.run)._repr_html_(),
    ]
    for text in texts:
        words = " ".join(words_of_html(text))
        assert not {each for each in wanted if " ".join(each.split()) not in words}
    text = " ".join(words_of_markdown(markdown.page_markdown(page)))
    assert not {each for each in wanted if " ".join(each.split()) not in text}


def test_run_page_shows_that_a_run_was_disturbed(a_run):
    record = json.loads(a_run.attrs["record"])
    note = {"kind": "disturbed", "metrics": ["duration"], "text": "others used 1.5 cores"}
    tree = a_run.copy()
    tree.attrs = {
        **a_run.attrs,
        "record": json.dumps({**record, "quality": json.dumps({"duration": "disturbed"})}),
        "quality": json.dumps([note]),
    }
    page = run_pages.page(run_pages.RunData.read(Run(tree)), {})

    assert page.state.text == "✓ ok, disturbed"
    assert "disturbed: others used 1.5 cores" in page.lines
    assert "disturbed" in pages.run(Run(tree))._repr_html_()


def test_pages_of_notebook_name_unknown_sections_and_runs(run_data):
    page = pages.run(run_data.run)

    with pytest.raises(UsageError, match="no section 'memry': did you mean 'memory'"):
        page["memry"]
    with pytest.raises(UsageError, match="takes a Run, not 'latest'"):
        pages.run("latest")
    with pytest.raises(UsageError, match="start=2, stop=1: must be"):
        pages.run(run_data.run, start=2, stop=1)
    assert page.keys()[0] == "limits"
    assert "## " in page.to_markdown()


def test_run_page_of_a_window_shows_its_tasks_only(a_run):
    data = run_pages.RunData.read(Run(a_run))
    group = data.timeline.groups[0]
    stop = data.whole[0] + 1e-6
    whole, part = pages.run(data.run, group=group), pages.run(data.run, stop=stop, group=group)

    assert "The longest" in repr(whole["longest"])
    assert "No task of the group ran within the window" in repr(part["longest"])
