import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import panel as pn
import pytest
import xarray as xr
from bokeh.embed import file_html
from bokeh.models import HoverTool, Image, Quad, Range1d, Span
from bokeh.resources import INLINE
from IPython.core.formatters import DisplayFormatter

from benchkit import Store, plots
from benchkit.errors import UsageError
from benchkit.show.dashboard import pair
from benchkit.show.dashboard.run.page import live_views
from benchkit.show.dashboard.state.time_window import PairWindow
from benchkit.show.pages import run as run_page
from benchkit.show.pages.pair import PairData, sections
from benchkit.show.pages.run import RunData, read_timeline
from benchkit.show.plots import base
from benchkit.show.plots.thread_activity import mark_events, window_strip
from benchkit.store.run import Run

STORE = Path(__file__).parents[2] / "data" / "1_digests"
DRAW = [
    plots.memory_by_kind,
    plots.memory_by_worker,
    plots.task_group_bars,
    plots.task_stream,
    plots.worker_load,
    plots.scheduler_load,
]


def figures(fig):
    return fig if isinstance(fig, list) else [fig]


@pytest.mark.browser
@pytest.mark.parametrize(("width", "place"), [(390, "below"), (900, "right")])
def test_legend_is_below_a_narrow_figure(a_run, browser, tmp_path, width, place):
    fig = plots.memory_by_kind(a_run)
    height, n_entries = fig.height, len(fig.legend[0].items)
    (tmp_path / "figure.html").write_text(file_html(fig, INLINE, "figure"))
    page = browser.new_page(viewport={"width": width, "height": 700})
    page.goto((tmp_path / "figure.html").as_uri())
    page.wait_for_function("Bokeh.documents.length && Bokeh.documents[0].is_idle")
    drawn = page.evaluate(
        f"""() => {{
          const figure = Bokeh.documents[0].get_model_by_id('{fig.id}');
          const place = ['right', 'below'].find(
            side => figure[side].some(item => item.type.endsWith('Legend')));
          const view = Bokeh.index.find_one(figure);
          return [place, view.frame.bbox.width / {width}, figure.height];
        }}"""
    )
    page.close()

    assert drawn[0] == place
    assert drawn[1] > 0.7  # the plot area has most of the width
    assert drawn[2] == height + (20 * -(-n_entries // 2) if place == "below" else 0)


def test_figure_shows_itself_as_last_expression_of_a_cell(a_run, monkeypatch):
    shown = []
    monkeypatch.setattr(base, "show", shown.append)
    monkeypatch.setattr(base, "load_bokeh", lambda: shown.append("BokehJS"))
    # Another test of this process may have loaded BokehJS into a notebook.
    monkeypatch.setattr(base, "curstate", lambda: SimpleNamespace(notebook=False))
    fig = plots.memory_by_kind(a_run)

    assert DisplayFormatter().format(fig) == ({}, {})  # it displayed itself
    assert shown == ["BokehJS", fig]


def test_plots_lists_figures_only():
    assert dir(plots) == sorted(plots.__all__)


@pytest.mark.parametrize("wrong", ["latest", Store(STORE)])
def test_plots_refuse_what_is_no_run(wrong):
    with pytest.raises(UsageError, match=r"plots take a Run, not .*: open runs with Store\.open"):
        plots.memory_by_kind(wrong)


@pytest.mark.parametrize("draw", DRAW)
def test_run_plots_have_title_units_and_label(draw, a_run):
    for fig in figures(draw(a_run)):
        assert fig.title.text.endswith(("?", ")"))
        assert re.fullmatch(r"time (\(s\)|of threads \((s|ms)\))", fig.xaxis[0].axis_label)
        assert fig.yaxis[0].axis_label
        assert fig.html_attributes["aria-label"] == fig.title.text
        assert fig.renderers


@pytest.mark.parametrize("draw", DRAW)
def test_run_plots_draw_runs_of_the_oldest_format(draw):
    store = Store(STORE, create=False)
    for fig in figures(draw(store.open(store.runs(outcome="ok")["id"].iloc[0]).tree)):
        assert "Nothing was recorded" not in fig.html_attributes["aria-label"]
        assert fig.renderers


@pytest.mark.parametrize("draw", DRAW)
def test_run_plots_of_empty_run_say_so(draw):
    for fig in figures(draw(xr.DataTree())):
        assert "Nothing was recorded" in fig.html_attributes["aria-label"]


@pytest.mark.parametrize(
    ("joined", "left", "threads"),
    [
        ([0, 0], [np.nan, np.nan], 5),
        ([np.nan, np.nan], [np.nan, np.nan], 5),  # unknown times
        ([0, 4], [3, np.nan], 3),  # one worker replaces the other
        ([0, 2], [3, np.nan], 5),  # both exist for some time
    ],
)
def test_worker_load_limit_counts_simultaneous_threads(a_run, joined, left, threads):
    tree = a_run.copy()
    workers = tree["workers"].to_dataset().isel(worker=slice(0, 2))
    for name, values in (("joined", joined), ("left", left), ("nthreads", [2, 3])):
        workers[name] = ("worker", np.array(values, "f8"))
    tree["workers"] = xr.DataTree(workers)

    cpu, *_ = plots.worker_load(tree)

    (line,) = cpu.select(Span)
    assert line.location == 100 * threads


def test_worker_load_draws_gpus_that_dask_measured(a_run):
    tree = a_run.copy()
    workers = tree["workers"].to_dataset()
    tree["workers"] = xr.DataTree(workers.assign(gpu_utilization=0 * workers["cpu"] + 50.0))

    *_, gpu = plots.worker_load(tree)

    assert len(plots.worker_load(a_run)) == 3
    assert gpu.title.text == "How busy were the GPUs?"
    assert ("highest", "@gpu_utilization{0,0.0} % of one") in tips_of(gpu)


def tips_of(fig):
    return [tip for tool in fig.select(HoverTool) for tip in tool.tooltips]


def words_of(fig):
    return [item.label.value for item in fig.legend[0].items]


def test_run_plot_tooltips_have_label_and_unit(a_run):
    network = plots.worker_load(a_run)[1]

    assert ("memory", "$y{0.00} GiB") in tips_of(plots.memory_by_worker(a_run))
    assert ("received", "@net_read{0,0.0} MiB/s") in tips_of(network)
    for draw in DRAW:
        assert all(name for fig in figures(draw(a_run)) for name, _ in tips_of(fig))


def test_run_plot_limits_have_legend_entries(a_run):
    cpu, *_ = plots.worker_load(a_run)

    assert "limit of a worker" in words_of(plots.memory_by_worker(a_run))
    assert "all threads" in words_of(cpu)
    assert "all threads" in words_of(plots.busy_threads(a_run))


def test_run_figure_titles_fit_a_telephone(a_run):
    for draw in [*DRAW, plots.transfer_matrix, plots.flame_graph]:
        for fig in figures(draw(a_run)):
            start = fig.min_border_left + fig.title.offset
            assert start >= 0
            if fig.min_border_left <= 64:
                assert start <= 12  # left of the frame, at the left end of the figure
                assert len(fig.title.text) <= 58, fig.title.text


def test_pair_page_figures_have_distinct_labels(a_run):
    data = PairData(*(RunData(Run(a_run), *read_timeline(a_run)) for _ in "ab"))
    window = PairWindow(data, {})
    views = live_views(window, partial(sections, data), ["threads", "stream"])
    shown = pn.Column(*pair.controls(window), *views)
    fig = [pane.object for pane in shown.select(pn.pane.Bokeh)]

    names = [each.html_attributes["aria-label"] for each in fig]
    assert names == [each.title.text for each in fig]
    assert len({*names}) == len(names) == 5


def test_window_strip_title_has_quantity_and_unit(a_run):
    title = window_strip(a_run, (0.0, 1.0), Range1d(start=0, end=1)).title.text

    assert "(s)" in title
    assert "memory" in title


@pytest.fixture
def lossy(a_run, monkeypatch):
    events = pd.DataFrame(
        {
            "time": [1.0, 2.0, 3.0], "worker": [0, 1, 0],
            "topic": ["worker-status-change", "worker-removed", "steal"],
            "message": ['{"status": "paused", "before": "running"}', '{"n_lost": 1}', "{}"],
        }
    )  # fmt: skip
    monkeypatch.setattr(Run, "events", lambda self: events)
    return Run(a_run)


@pytest.mark.parametrize(("worker", "times"), [(None, [1.0, 2.0]), (1, [2.0]), (7, [])])
def test_mark_events_draws_events_of_one_worker(lossy, worker, times):
    fig = plots.memory_by_kind(lossy.tree)
    mark_events(fig, lossy, worker)

    upright = [span.location for span in fig.select(Span) if span.dimension == "height"]
    assert sorted(upright) == times


def test_mark_events_tooltip_is_readable(lossy):
    fig = plots.memory_by_kind(lossy.tree)
    mark_events(fig, lossy)

    (data,) = [r.data_source.data for r in fig.renderers if "topic" in r.data_source.data]
    assert list(data["text"]) == ["from running to paused", "1 lost"]
    assert all(name for name, _ in tips_of(fig))


def test_problems_say_that_they_concern_the_whole_run(lossy):
    page = run_page.page(run_page.RunData.read(lossy), {"from": "0", "to": "0.1"})

    assert "for any window" in page["problems"].note
    (table,) = page["problems"].contents()
    assert table.rows


def many_workers(a_run, count):
    tree = a_run.copy()
    workers = tree["workers"].to_dataset().isel(worker=[0] * count)
    limit = float(workers["memory_limit"].values[0])
    shares = np.arange(count) / count
    workers["process"] = workers["process"] * 0 + xr.DataArray(shares * limit, dims="worker")
    workers["left"] = ("worker", np.where(np.arange(count) == 1, -1.0, np.nan))
    workers["name"] = ("worker", [f"w{i}" for i in range(count)])
    tree["workers"] = xr.DataTree(workers)
    return tree


def test_worker_heat_has_first_worker_at_the_top(a_run):
    fig = plots.memory_by_worker(many_workers(a_run, 60))

    (renderer,) = [each for each in fig.renderers if isinstance(each.glyph, Image)]
    (value,), (index,) = (renderer.data_source.data[name] for name in ("value", "worker"))
    limit = float(a_run["workers/memory_limit"].values[0]) / 2**30
    assert value.shape == index.shape
    assert list(index[:, 0]) == list(range(60))[::-1]
    assert np.nanmax(value[0]) == pytest.approx(limit * 59 / 60, rel=1e-5)
    assert renderer.glyph.color_mapper.high == pytest.approx(limit)
    assert fig.yaxis[0].major_label_overrides[59.5] == "w0"
    assert fig.yaxis[0].axis_label == "60 workers"
    (tool,) = fig.select(HoverTool)
    assert tool.formatters["@worker"].args["names"][:2] == ["w0", "w1"]


def test_worker_heat_hatches_absent_workers(a_run):
    tree = many_workers(a_run, 3)
    workers = tree["workers"].to_dataset().copy(deep=True)
    half = float(workers["time"].values.mean())
    workers["process"][workers["time"].values > half, 2] = np.nan
    workers["left"][2] = half
    tree["workers"] = xr.DataTree(workers)

    fig = plots.worker_heat(tree, "process")

    (renderer,) = [each for each in fig.renderers if isinstance(each.glyph, Image)]
    (value,) = renderer.data_source.data["value"]
    stays, _, leaves = value[::-1]
    assert np.isfinite(stays[-1])
    assert np.isnan(leaves[-1])
    assert np.isfinite(leaves).any()
    (hatched,) = [each for each in fig.renderers if isinstance(each.glyph, Quad)]
    data = hatched.data_source.data
    assert (data["top"][-1], data["bottom"][-1]) == (1, 0)  # the last of three rows is the lowest
    assert data["right"][-1] == fig.x_range.end


def stream_of(n_tasks, n_threads=4, n_groups=20, seed=0):
    """Return a run whose threads each run tasks in sequence, with some idle time between tasks."""
    rng = np.random.default_rng(seed)
    each = n_tasks // n_threads
    duration = rng.exponential(1.0, (n_threads, each))
    gap = rng.exponential(0.3, (n_threads, each))
    stop = np.cumsum(duration + gap, axis=1)
    tasks = xr.Dataset(
        {
            "start": ("task", (stop - duration).ravel()),
            "duration": ("task", duration.ravel()),
            "thread": ("task", np.repeat(np.arange(n_threads), each).astype("i4")),
            "group": ("task", rng.integers(0, n_groups, each * n_threads).astype("i4")),
        }
    )
    names = [f"group-{i}" for i in range(n_groups)]
    groups = xr.Dataset(coords={"task_group": ("task_group", names)})
    return xr.DataTree.from_dict({"/tasks": tasks, "/task_groups": groups})


def test_raster_pixel_shows_largest_group_and_load():
    tasks = xr.Dataset(
        {
            "start": ("task", [0.0, 0.6, 1.0, 2.0]),
            "duration": ("task", [0.6, 0.4, 0.2, 1.0]),
            "thread": ("task", np.zeros(4, "i4")),
            "group": ("task", np.array([0, 1, 1, 0], "i4")),
        }
    )
    groups = xr.Dataset(coords={"task_group": ("task_group", ["a", "b"])})
    stream = plots.TaskStream(xr.DataTree.from_dict({"/tasks": tasks, "/task_groups": groups}))

    image = stream.raster(0.0, 4.0, width=4)
    first, second, third, fourth = (int(value) for value in image[0])

    assert first == third == 4  # always busy, mostly with a
    assert second == 1 + 4 + 0  # a fifth busy, with b
    assert fourth == 0  # idle


def test_raster_shares_rows_between_many_threads():
    threads = np.arange(1300)
    even = threads[threads % 2 == 0]  # these run for another second
    tasks = xr.Dataset(
        {
            "start": ("task", np.r_[np.zeros(1300), np.ones(650)]),
            "duration": ("task", np.ones(1950)),
            "thread": ("task", np.r_[threads, even].astype("i4")),
            "group": ("task", np.zeros(1950, "i4")),
        }
    )
    groups = xr.Dataset(coords={"task_group": ("task_group", ["a"])})
    stream = plots.TaskStream(xr.DataTree.from_dict({"/tasks": tasks, "/task_groups": groups}))

    image = stream.raster(0.0, 2.0, width=2)

    assert image.shape == (434, 2)  # three threads per row, one in the last
    assert set(image[:, 0]) == {4}
    assert image[:3, 1].tolist() == [3, 2, 3]  # two, one, two of three are busy
    assert image[-1, 1] == 0
    assert "3 per row" in stream.figure.yaxis[0].axis_label


def test_task_stream_outlines_very_short_tasks():
    stream = plots.TaskStream(stream_of(10))

    (bars,) = [r for r in stream.figure.renderers if r.data_source is stream._rectangle_source]
    assert bars.glyph.line_color == "colour"
    assert bars.glyph.line_width == 1


def test_task_stream_choose_keeps_shown_window():
    stream = plots.TaskStream(stream_of(4_000, n_groups=3))
    stream.figure.x_range = Range1d(start=10.0, end=20.0)

    stream.choose("group-1")

    data = stream._rectangle_source.data
    assert 0 < len(data["left"]) < 100
    assert (data["left"] < 20.0).all()
    assert (data["right"] > 10.0).all()


def test_task_stream_choose_highlights_groups():
    stream = plots.TaskStream(stream_of(4_000, n_groups=3))
    before = stream.raster(*stream.window)

    stream.choose("group-1", "group-2")
    chosen = stream.raster(*stream.window)
    stream.choose()

    # The value of a pixel encodes the colour of its group and the level of busy time.
    stream_colours = {int(value) for value in np.unique(chosen) if value}
    assert len(stream_colours) < len({int(value) for value in np.unique(before) if value})
    assert (stream.raster(*stream.window) == before).all()


def test_task_stream_draws_few_tasks_as_rectangles():
    stream = plots.TaskStream(stream_of(40_000))
    assert len(stream._image_source.data["image"]) == 1
    assert len(stream._rectangle_source.data["left"]) == 0

    left, right = stream.window
    stream.show_window(left, left + (right - left) * 0.01)
    assert len(stream._image_source.data["image"]) == 0
    assert 100 < len(stream._rectangle_source.data["left"]) <= 4000


def test_task_stream_legend_fits_and_names_are_distinct():
    tree = stream_of(180, n_threads=1, n_groups=9)
    hashes = [f"sum-{at:032x}" for at in range(9)]
    tree["task_groups"] = xr.DataTree(xr.Dataset(coords={"task_group": hashes}))

    fig = plots.TaskStream(tree).figure

    labels = [item.label.value for item in fig.legend[0].items]
    assert sorted(labels) == ["sum", *(f"sum #{at}" for at in range(2, 10))]
    line = fig.legend[0].glyph_height + fig.legend[0].spacing
    assert fig.height > len(labels) * line


@pytest.mark.parametrize(
    ("peak", "seen"), [(0.5, True), (0.05, False)], ids=["in sight", "far above"]
)
def test_memory_by_worker_shows_limit_unless_values_are_flat(a_run, peak, seen):
    tree = a_run.copy(deep=True)
    workers = tree["workers"].to_dataset()
    limit = float(workers["memory_limit"].max())
    workers["process"][:] = peak * limit
    tree["workers"] = xr.DataTree(workers)

    end = plots.memory_by_worker(tree).y_range.end

    assert (isinstance(end, float) and end > limit / 2**30) is seen


def test_plot_accessor_calls_the_function_with_the_same_name(a_run):
    run = Run(a_run)

    assert run.plot.memory_by_kind().title.text == plots.memory_by_kind(a_run).title.text
    assert len(run.plot.worker_load()) == len(plots.worker_load(run)) == 3
    methods = [name for name in vars(plots.RunPlots) if not name.startswith("_")]
    assert all(callable(getattr(plots, name)) for name in methods)


def test_busy_threads_stack_excludes_fetches(a_run):
    fig = plots.busy_threads(a_run)
    stacked = [r.name for r in fig.renderers if type(r.glyph).__name__ == "VArea"]
    (fetches,) = (r for r in fig.renderers if r.name == "transfer")

    assert "compute" in stacked
    assert "transfer" not in stacked
    assert (type(fetches.glyph).__name__, fetches.glyph.y) == ("Line", "transfer")
