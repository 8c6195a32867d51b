from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from benchkit import Store, plots

STORE = Path(__file__).parents[1] / "data" / "1"
DRAW = [
    plots.memory_by_kind,
    plots.memory_by_worker,
    plots.task_group_bars,
    plots.task_stream,
    plots.worker_load,
    plots.scheduler_load,
]


def figures(drawn):
    return drawn if isinstance(drawn, list) else [drawn]


@pytest.mark.parametrize("draw", DRAW)
def test_a_figure_has_a_title_units_and_a_name(draw, a_run):
    for drawn in figures(draw(a_run)):
        assert drawn.title.text.endswith(("?", ")"))
        assert drawn.xaxis[0].axis_label in ("time (s)", "thread-seconds (s)")
        assert drawn.yaxis[0].axis_label
        assert drawn.html_attributes["aria-label"] == drawn.title.text
        assert drawn.renderers


@pytest.mark.parametrize("draw", DRAW)
def test_a_run_of_the_oldest_format_is_drawn(draw):
    store = Store(STORE, create=False)
    draw(store.open(store.runs(outcome="ok")["id"].iloc[0]))


@pytest.mark.parametrize("draw", DRAW)
def test_a_run_in_which_nothing_was_watched_says_so(draw):
    for drawn in figures(draw(xr.DataTree())):
        assert "Nothing was recorded" in drawn.html_attributes["aria-label"]


def stream_of(n_tasks, n_threads=4, n_groups=20, seed=0):
    """A run whose threads are each busy back to back, with some idle time between tasks."""
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


@pytest.mark.parametrize("zoom", [1.0, 0.1, 0.003])
def test_the_raster_weighs_time_exactly_at_every_zoom(zoom):
    tree = stream_of(40_000)
    stream = plots.TaskStream(tree)
    left, right = stream.window
    right = left + (right - left) * zoom
    tasks = tree["tasks"].to_dataset()
    start, stop = tasks["start"].values, (tasks["start"] + tasks["duration"]).values
    truth = np.maximum(np.minimum(stop, right) - np.maximum(start, left), 0).sum()

    assert stream.raster(left, right).busy_s == pytest.approx(truth, rel=1e-9)


def test_a_pixel_shows_the_group_that_took_most_of_it_and_how_busy_it_was():
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

    image = stream.raster(0.0, 4.0, width=4).image
    first, second, third, fourth = (int(value) for value in image[0])

    assert first == third == 4  # wholly busy, mostly with a
    assert second == 1 + 4 + 0  # a fifth busy, with b
    assert fourth == 0  # idle


def test_few_tasks_are_rectangles_and_many_are_a_picture():
    stream = plots.TaskStream(stream_of(40_000))
    assert len(stream._picture.data["image"]) == 1
    assert len(stream._bars.data["left"]) == 0

    left, right = stream.window
    stream.show_window(left, left + (right - left) * 0.01)
    assert len(stream._picture.data["image"]) == 0
    assert 100 < len(stream._bars.data["left"]) <= 4000
