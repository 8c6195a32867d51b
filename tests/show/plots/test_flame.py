import numpy as np
import pandas as pd
import pytest
import xarray as xr
from bokeh.embed import file_html
from bokeh.models.annotations import ColorBar
from bokeh.resources import INLINE
from playwright.sync_api import expect

from benchkit import plots
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.show.pages import pair
from benchkit.show.pages.run import RunData, read_timeline
from benchkit.show.plots.flame import flame_frames, merged_frames
from benchkit.show.plots.transfers import TransferMatrix
from benchkit.store.run import Run
from validation.synthetic_runs import make_run

PROFILE = pd.DataFrame(
    {
        "parent": [-1, 0, 1, 0, -1, 4, 1],
        "prefix": ["sum"] * 4 + ["load"] * 2 + ["sum"],
        "function": ["sum", "add", "deep", "other", "load", "<b>read</b>", "deeper"],
        "file": ["", "numpy/add.py", "dask/x.py", "own.py", "", "io.py", "numpy/y.py"],
        "line": [0, 3, 4, 5, 0, 6, 7],
        "count": [60, 40, 10, 15, 100, 90, 25],
    }
)


def source(fig, name):
    return next(r.data_source for r in fig.renderers if r.data_source.name == name).data


def test_flame_frames_lie_inside_callers_widest_first():
    laid = flame_frames(PROFILE)

    assert laid["depth"].tolist() == [0, 1, 2, 1, 0, 1, 2]
    assert laid.loc[[4, 0], "left"].tolist() == [0.0, 100.0]
    assert laid.loc[[6, 2], "left"].tolist() == [100.0, 125.0]
    assert (laid["right"] - laid["left"] == laid["count"]).all()
    for row in laid[laid["parent"] >= 0].itertuples():
        above = laid.loc[row.parent]
        assert above["left"] <= row.left
        assert row.right <= above["right"]
    for _, level in laid.groupby("depth"):
        level = level.sort_values("left")
        assert (level["left"].to_numpy()[1:] >= level["right"].to_numpy()[:-1]).all()


def test_flame_frames_own_samples_sum_to_all_samples():
    laid = flame_frames(PROFILE)

    assert laid["own"].tolist() == [5, 5, 10, 15, 10, 90, 25]
    assert laid["own"].sum() == laid.loc[laid["parent"] < 0, "count"].sum()


@pytest.fixture
def profiled(monkeypatch):
    tree = make_run()
    tree["profile"] = tree["profile"] if "profile" in tree.children else tree["tasks"]
    monkeypatch.setattr(Run, "profile", lambda self: PROFILE)
    monkeypatch.setattr("benchkit.show.plots.flame.has", lambda *words: True)
    return tree


def test_flame_graph_of_prefix_has_its_frames_only(profiled):
    fig = source(plots.flame_graph(profiled, prefix="load"), "frames")

    assert sorted(fig["name"]) == ["<b>read</b>", "load (tasks)"]
    assert max(fig["right"]) == 100
    assert "No samples of nothing" in plots.flame_graph(profiled, prefix="nothing").title.text


def test_flame_graph_counts_matching_samples_once(profiled):
    fig = plots.flame_graph(profiled, find="numpy")
    colours = dict(zip(source(fig, "frames")["name"], source(fig, "frames")["colour"], strict=True))

    assert "'numpy' in 25.0% of them" in fig.title.text
    assert colours["add"] != colours["other"] == colours["deep"]


def test_plots_of_real_run_have_frames_and_transfers(a_run):
    frames = source(plots.flame_graph(a_run), "frames")
    pairs = source(plots.transfer_matrix(a_run), "pairs")
    kept = a_run["transfers"]["bytes"].values

    assert max(frames["right"]) == Run(a_run).profile().query("parent < 0")["count"].sum()
    assert np.nansum(pairs["mib"]) == pytest.approx(np.nansum(kept) / 2**20)
    assert len(pairs["source"]) == 3**2, "two workers and the client"


def test_transfer_matrix_hatches_pairs_without_data(a_run):
    tree = a_run.copy()
    data = tree["transfers"].to_dataset()
    between = int(np.flatnonzero((data["source"] >= 0) & (data["destination"] >= 0))[0])
    data["bytes"][between] = np.nan
    tree["transfers"] = data
    fig = plots.transfer_matrix(tree)

    hatched = [r for r in fig.renderers if getattr(r.glyph, "hatch_pattern", None)]
    assert len(hatched) == 1
    ends = [data[end].values[between] for end in ("source", "destination")]
    names = tree["workers/name"].values[ends]
    found = hatched[0].data_source.data
    unknown = list(zip(found["source"], found["destination"], strict=True))
    assert unknown == [tuple(names), ("client", "client")], "no client reports"


def test_transfer_matrix_draws_zero_almost_transparent(a_run):
    (bar,) = plots.transfer_matrix(a_run).select(ColorBar)
    palette = bar.color_mapper.palette
    opacity = [int(colour[7:], 16) for colour in palette]

    assert {colour[:7] for colour in palette} == {"#3d85c6"}
    assert 0 < opacity[0] < 40
    assert opacity[-1] == 255


@pytest.mark.browser
def test_transfer_matrix_of_hundreds_of_workers_is_an_image(browser, artifacts, tmp_path):
    count, rng = 300, np.random.default_rng(0)
    cells = rng.exponential(2**20, (count, count))
    cells[7, 9] = 2**30
    cells[3] = np.nan
    tree = moved([f"w{i}" for i in range(count)], cells)
    fig = plots.transfer_matrix(tree)

    (picture,) = source(fig, "pairs")["mib"]
    assert picture[7, 9] == 1024
    assert np.isnan(picture[3]).all()
    assert fig.y_range.start > fig.y_range.end, "the first sender is above"
    page_file = tmp_path / "matrix.html"
    page_file.write_text(file_html(fig, INLINE, "matrix"))
    page, troubles = browser.new_page(viewport={"width": 900, "height": 700}), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_function("Bokeh.documents.length && Bokeh.documents[0].is_idle")
    place = page.evaluate(
        f"""() => {{
          const figure = Bokeh.documents[0].get_model_by_id('{fig.id}');
          const view = Bokeh.index.find_one(figure), frame = view.frame;
          const box = view.canvas_view.el.getBoundingClientRect();
          return [box.x + frame.x_scale.compute(9.5), box.y + frame.y_scale.compute(7.5)];
        }}"""
    )
    page.mouse.move(*place)
    expect(page.get_by_text("1,024.0 MiB")).to_be_visible()
    expect(page.get_by_text("w7", exact=True)).to_be_visible()
    expect(page.get_by_text("w9", exact=True)).to_be_visible()
    page.screenshot(path=artifacts / "transfers-many.png")
    assert troubles == []
    page.close()


def value_by_pair(fig):
    """Return the drawn value by names of sender and receiver."""
    pairs = source(fig, "pairs")
    ends = zip(pairs["source"], pairs["destination"], strict=True)
    return dict(zip(ends, pairs["value"], strict=True))


def moved(workers, cells, incomplete=()):
    """Return a run with these numbers of bytes sent between its workers."""
    cells = np.array(cells, float)
    source, destination = np.nonzero(cells)
    numbers = ("bytes", "bytes_compressed", "count", "seconds")
    pairs = {"source": source, "destination": destination}
    pairs |= {name: cells[source, destination] for name in numbers}
    return xr.DataTree.from_dict(
        {
            "/transfers": xr.Dataset(
                {
                    **{name: ("pair", values) for name, values in pairs.items()},
                    "incomplete": ("incomplete_report", np.array(incomplete, int)),
                }
            ),
            "/workers": xr.Dataset({"name": ("worker", workers)}),
        }
    )


def test_transfer_matrix_hatches_pairs_of_workers_without_report():
    tree = moved(["a", "b", "c"], [[0, 5, 0], [0, 0, 0], [0, 7, 0]], incomplete=[0, 2])

    pairs = source(plots.transfer_matrix(tree, "count"), "pairs")

    cells = np.reshape(pairs["value"], (3, 3))
    np.testing.assert_array_equal(cells, [[np.nan, 5, np.nan], [0, 0, 0], [np.nan, 7, np.nan]])
    wire = np.reshape(pairs["wire"], (3, 3)) * 2**20
    np.testing.assert_array_equal(wire[1], [0, 0, 0])
    assert np.isnan(wire[0, 0]), "the sender did not report"


def test_transfer_matrix_merges_neighbours_of_thousand_workers():
    count = 1000
    cells = np.zeros((count, count))
    cells[0, 999], cells[3, 998] = 10, 20
    tree = moved([f"w{i}" for i in range(count)], cells)
    tree["transfers/destination"].values[:] = [999, -1]  # the second to a client

    fig = plots.transfer_matrix(tree, "count")

    (picture,) = source(fig, "pairs")["value"]
    assert picture.shape == (251, 251), "four workers a row, and the client"
    assert picture[0, 249] == 10
    assert picture[0, 250] == 20
    assert np.nansum(picture) == 30
    assert np.isnan(picture[250, 250])


def test_transfer_matrix_draws_matrix_of_older_files():
    cells = np.array([[0, 5, 2], [np.nan, np.nan, 0], [0, 0, np.nan]])
    ends = {"source": [0, 1, -1], "destination": [0, 1, -1]}
    numbers = ("bytes", "bytes_compressed", "count", "seconds")
    shape = ("source", "destination")
    data = xr.Dataset({name: (shape, cells) for name in numbers}, ends)
    workers = xr.Dataset({"name": ("worker", ["a", "b"])})
    tree = xr.DataTree.from_dict({"/transfers": data, "/workers": workers})

    known = value_by_pair(plots.transfer_matrix(tree, "count"))

    assert known["a", "b"] == 5
    assert known["a", "client"] == 2
    assert known["b", "a"] == 0, "the receiver reported"
    assert np.isnan(known["b", "b"])


def test_transfer_difference_matches_workers_by_name():
    a = moved(["x", "y"], [[0, 5], [7, 0]])
    b = moved(["y", "x", "z"], [[0, 9, 0], [5, 0, np.nan], [2, 0, 0]])

    found = value_by_pair(plots.transfer_difference(a, b, "count"))

    assert found["x", "y"] == 0
    assert found["y", "x"] == 2
    assert found["z", "y"] == 2, "a worker that A did not have sent nothing there"
    assert np.isnan(found["x", "z"])


def test_transfer_difference_matches_unique_names_by_position():
    a, b = moved(["a-1", "a-2"], [[0, 3], [0, 0]]), moved(["b-1", "b-2"], [[0, 1], [0, 0]])

    pairs = source(plots.transfer_difference(a, b, "count"), "pairs")

    assert sorted(set(pairs["source"])) == ["worker 0", "worker 1"]
    assert pairs["value"].sum() == -2


def test_transfer_matrix_window_counts_its_fetches(a_run):
    within = TaskTimeline(a_run)
    matrix = TransferMatrix(a_run, within)
    events = a_run["task_events"].to_dataset()
    fetched = events["source"].values >= 0
    start, stop = events["start"].values[fetched], events["stop"].values[fetched]
    assert len(start) > 1, "the run fetched too little to tell"
    left, right = float(start.min()), float(np.median(start))

    matrix.show_window((left, right))
    pairs = source(matrix.figure, "pairs")
    assert np.nansum(pairs["count"]) == ((start < right) & (stop > left)).sum()
    assert np.nansum(pairs["value"]) == pytest.approx(np.nansum(pairs["seconds"]))
    ends = zip(pairs["source"], pairs["destination"], strict=True)
    has_client = np.array(["client" in pair for pair in ends])
    np.testing.assert_array_equal(np.isnan(pairs["count"]), has_client)
    assert "within the window" in matrix.figure.html_attributes["aria-label"]

    matrix.show_window(None, "count")
    whole = a_run["transfers"].to_dataset()
    names = np.array([*a_run["workers/name"].values, "client"])
    kept = zip(names[whole["source"]], names[whole["destination"]], strict=True)
    found = value_by_pair(matrix.figure)
    assert {pair: value for pair, value in found.items() if value > 0} == dict(
        zip(kept, whole["count"].values, strict=True)
    )


def test_plots_report_missing_records():
    bare = make_run(groups=False)

    for draw in (plots.flame_graph, plots.transfer_matrix):
        assert "Nothing was recorded" in draw(bare).html_attributes["aria-label"]


LATER = PROFILE.assign(
    function=["sum", "add", "deep", "fresh", "load", "<b>read</b>", "deeper"],
    file=["", "/venv/lib/python3.12/site-packages/numpy/add.py", *PROFILE["file"][2:]],
    count=[90, 70, 10, 15, 50, 45, 55],
)


@pytest.fixture
def two_profiled(profiled, monkeypatch):
    before, after = profiled, profiled.copy()
    kept = {id(before): PROFILE, id(after): LATER}
    monkeypatch.setattr(Run, "profile", lambda self: kept[id(self.tree)])
    return before, after


def test_merged_frames_ignore_location_of_packages():
    before = PROFILE.assign(
        file=PROFILE["file"].where(
            PROFILE.index != 1, "/x/lib/python3.11/site-packages/numpy/add.py"
        )
    )
    merged = merged_frames(before, LATER).set_index("function")

    assert merged.loc["add", ["a", "b"]].tolist() == pytest.approx([0.4, 0.7])
    assert merged.loc["other", ["a", "b"]].tolist() == pytest.approx([0.15, 0.0])
    assert merged.loc["fresh", ["a", "b"]].tolist() == pytest.approx([0.0, 0.15])
    assert len(merged) == len(PROFILE) + 1


def test_flame_difference_marks_more_less_and_new(two_profiled):
    fig = plots.flame_difference(*two_profiled)
    frames = pd.DataFrame(source(fig, "frames")).set_index("name")

    assert frames["right"].max() == pytest.approx(1.4)
    assert {"▲ sum (tasks)", "▼ load (tasks)", "▲ add", "new: fresh", "deep"} <= set(frames.index)
    assert frames.loc["▲ deeper", "change"] == pytest.approx(0.3)
    assert not any("other" in name for name in frames.index)
    assert "calls only in A not shown: 0.15 s" in fig.title.text


def test_flame_difference_shows_removed_calls_on_request(two_profiled):
    fig = plots.flame_difference(*two_profiled, show_removed=True)
    frames = pd.DataFrame(source(fig, "frames")).set_index("name")

    lost, caller = frames.loc["gone: other"], frames.loc["▲ sum (tasks)"]
    assert lost["right"] - lost["left"] == pytest.approx(0.15)
    assert caller["left"] <= lost["left"]
    assert lost["right"] <= caller["right"] + 1e-9
    assert caller["right"] - caller["left"] == pytest.approx(0.9 + 0.15)
    assert "not shown" not in fig.title.text


def test_flame_difference_names_run_without_call_stacks(a_run):
    fig = plots.flame_difference(make_run(groups=False), a_run)

    assert "No call stacks were recorded for A" in fig.html_attributes["aria-label"]


def stacks_of_pair(trees, **state):
    data = pair.PairData(*(RunData(Run(tree), *read_timeline(tree)) for tree in trees))
    (section,) = [each for each in pair.sections(data, state) if each.key == "stacks"]
    return section


def test_pair_page_shows_removed_calls_on_request(two_profiled):
    few, every = (stacks_of_pair(two_profiled, calls=calls) for calls in ("", "1"))
    shown = [section.contents()[0].make() for section in (few, every)]

    assert [each.value for each in (*few.filters(), *every.filters())] == ["", "1"]
    assert "not shown" in shown[0].title.text
    assert "gone: other" in list(source(shown[1], "frames")["name"])


def test_pair_page_names_run_without_call_stacks(a_run):
    section = stacks_of_pair([a_run, make_run(groups=False)])

    assert section.filters() == []
    assert "Not recorded in B" in section.contents()[0][0].text


def test_flame_difference_of_equal_runs_is_zero(a_run):
    frames = source(plots.flame_difference(a_run, a_run), "frames")

    assert not np.abs(frames["change"]).any()
    assert len({*frames["colour"]}) == 1


@pytest.mark.browser
def test_flame_graph_click_zooms_to_frame(profiled, browser, tmp_path, artifacts):
    page_file = tmp_path / "flame.html"
    fig = plots.flame_graph(profiled)
    page_file.write_text(file_html(fig, INLINE, "flame"))
    page, troubles = browser.new_page(viewport={"width": 1000, "height": 400}), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_function("Bokeh.documents.length && Bokeh.documents[0].is_idle")
    ends = f"(() => {{ const r = Bokeh.documents[0].get_model_by_id('{fig.x_range.id}');"
    ends += " return [r.start, r.end] })()"
    assert page.evaluate(ends) == [0, 160]

    labels = f"Bokeh.documents[0].get_model_by_id('{fig.id}').renderers[0].data_source.data.label"
    assert "<b>read</b>" in page.evaluate(labels)
    box = page.locator(".bk-Canvas, .bk-Figure").first.bounding_box()
    inner = page.evaluate(
        f"(() => {{ const f = Bokeh.documents[0].get_model_by_id('{fig.id}');"
        " return [f.inner_width, f.inner_height] })()"
    )
    # The row of prefixes is the lowest; its second frame is `sum`, from 100 to 160.
    left = box["x"] + box["width"] - inner[0] - 5
    page.mouse.click(left + inner[0] * 0.8, box["y"] + box["height"] - 62)
    page.wait_for_function(f"{ends}[0] == 100")
    page.screenshot(path=artifacts / "flame-zoomed.png")
    assert page.evaluate(ends) == [100, 160]
    assert not troubles
