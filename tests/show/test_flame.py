import numpy as np
import pandas as pd
import pytest
import xarray as xr
from bokeh.embed import file_html
from bokeh.resources import INLINE
from playwright.sync_api import expect
from synthetic_runs import make_run

from benchkit import plots
from benchkit.show.plots.flame import flame_frames
from benchkit.store.run import Run

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


def source(drawn, name):
    return next(r.data_source for r in drawn.renderers if r.data_source.name == name).data


def test_each_frame_lies_inside_its_caller_beside_its_siblings_the_widest_first():
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


def test_the_samples_of_frames_themselves_are_all_samples():
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


def test_the_graph_of_one_prefix_has_its_frames_only(profiled):
    drawn = source(plots.flame_graph(profiled, prefix="load"), "frames")

    assert sorted(drawn["name"]) == ["<b>read</b>", "load (tasks)"]
    assert max(drawn["right"]) == 100
    assert "No samples of nothing" in plots.flame_graph(profiled, prefix="nothing").title.text


def test_what_is_looked_for_is_counted_once(profiled):
    drawn = plots.flame_graph(profiled, find="numpy")
    colours = dict(
        zip(source(drawn, "frames")["name"], source(drawn, "frames")["colour"], strict=True)
    )

    assert "'numpy' in 25.0% of them" in drawn.title.text
    assert colours["add"] != colours["other"] == colours["deep"]


def test_a_real_run_has_a_flame_graph_and_a_matrix(a_run):
    frames = source(plots.flame_graph(a_run), "frames")
    pairs = source(plots.transfer_matrix(a_run), "pairs")
    kept = a_run["transfers"]["bytes"].values

    assert max(frames["right"]) == Run(a_run).profile().query("parent < 0")["count"].sum()
    assert np.nansum(pairs["mib"]) == pytest.approx(np.nansum(kept) / 2**20)
    assert len(pairs["source"]) == kept.size


def test_pairs_of_which_nobody_told_are_hatched(a_run):
    tree = a_run.copy()
    data = tree["transfers"].to_dataset()
    data["bytes"][0, 0] = np.nan
    tree["transfers"] = tree["transfers"].assign(bytes=data["bytes"])
    drawn = plots.transfer_matrix(tree)

    hatched = [r for r in drawn.renderers if getattr(r.glyph, "hatch_pattern", None)]
    assert len(hatched) == 1
    n_unknown = int(np.isnan(data["bytes"].values).sum())
    assert n_unknown >= 1
    assert len(hatched[0].data_source.data["x"]) == n_unknown


@pytest.mark.browser
def test_pairs_of_hundreds_of_workers_are_one_picture(browser, artifacts, tmp_path):
    count, rng = 300, np.random.default_rng(0)
    cells = rng.exponential(2**20, (count, count))
    cells[7, 9] = 2**30
    cells[3] = np.nan
    numbers = {"bytes": cells, "bytes_compressed": cells / 2, "count": cells, "seconds": cells}
    tree = xr.DataTree.from_dict(
        {
            "/transfers": xr.Dataset(
                {name: (("source", "destination"), values) for name, values in numbers.items()},
                {"source": range(count), "destination": range(count)},
            ),
            "/workers": xr.Dataset({"name": ("worker", [f"w{i}" for i in range(count)])}),
        }
    )
    drawn = plots.transfer_matrix(tree)

    (picture,) = source(drawn, "pairs")["mib"]
    assert picture[7, 9] == 1024
    assert np.isnan(picture[3]).all()
    assert drawn.y_range.start > drawn.y_range.end, "the first sender is above"
    page_file = tmp_path / "matrix.html"
    page_file.write_text(file_html(drawn, INLINE, "matrix"))
    page, troubles = browser.new_page(viewport={"width": 900, "height": 700}), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_function("Bokeh.documents.length && Bokeh.documents[0].is_idle")
    place = page.evaluate(
        f"""() => {{
          const figure = Bokeh.documents[0].get_model_by_id('{drawn.id}');
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


def test_what_was_not_recorded_is_said():
    bare = make_run(groups=False)

    for draw in (plots.flame_graph, plots.transfer_matrix):
        assert "Nothing was recorded" in draw(bare).html_attributes["aria-label"]


@pytest.mark.browser
def test_a_click_on_a_frame_makes_it_as_wide_as_the_figure(profiled, browser, tmp_path, artifacts):
    page_file = tmp_path / "flame.html"
    drawn = plots.flame_graph(profiled)
    page_file.write_text(file_html(drawn, INLINE, "flame"))
    page, troubles = browser.new_page(viewport={"width": 1000, "height": 400}), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_function("Bokeh.documents.length && Bokeh.documents[0].is_idle")
    ends = f"(() => {{ const r = Bokeh.documents[0].get_model_by_id('{drawn.x_range.id}');"
    ends += " return [r.start, r.end] })()"
    assert page.evaluate(ends) == [0, 160]

    labels = f"Bokeh.documents[0].get_model_by_id('{drawn.id}').renderers[0].data_source.data.label"
    assert "<b>read</b>" in page.evaluate(labels)
    box = page.locator(".bk-Canvas, .bk-Figure").first.bounding_box()
    inner = page.evaluate(
        f"(() => {{ const f = Bokeh.documents[0].get_model_by_id('{drawn.id}');"
        " return [f.inner_width, f.inner_height] })()"
    )
    # The row of prefixes is the lowest; the second of them is `sum`, from 100 to 160.
    left = box["x"] + box["width"] - inner[0] - 5
    page.mouse.click(left + inner[0] * 0.8, box["y"] + box["height"] - 62)
    page.wait_for_function(f"{ends}[0] == 100")
    page.screenshot(path=artifacts / "flame-zoomed.png")
    assert page.evaluate(ends) == [100, 160]
    assert not troubles
