"""The figure of what bound a run over time."""

import pytest

from benchkit.analysis.insight.blame import CAUSES
from benchkit.show.plots.thread_activity import CAUSE_LABELS, N_LIMIT_BARS, limits_over_time
from benchkit.show.theme import CAUSE_COLOURS
from benchkit.store.run import Run
from validation.graph_runs import graph_run, tasks_of


@pytest.fixture
def run(tmp_path):
    tasks = tasks_of(("a-0", 1, 3, ""), ("b-0", 3, 9, "a-0"))
    return graph_run(tmp_path, tasks, duration=10, submissions=[(0.9, 2)])


def test_limits_over_time_stacks_causes_to_100_percent(run):
    fig = limits_over_time(run)
    bars = {renderer.name: renderer for renderer in fig.renderers}
    data = fig.renderers[0].data_source.data

    names = ["compute, threads busy", "graphs, scheduler", "client", "unexplained"]
    assert list(bars) == names
    last = bars["unexplained"].glyph
    assert data[last.top] == pytest.approx([100] * N_LIMIT_BARS)
    assert sum(data["compute, threads busy"]) / 100 * last.width == pytest.approx(8)
    assert bars["compute, threads busy"].glyph.fill_color == CAUSE_COLOURS["computing"]
    assert (fig.xaxis.axis_label, fig.yaxis.axis_label) == ("time (s)", "share (%)")
    assert fig.title.text == "What bound the run? A bar is 41.7 ms"
    assert (fig.x_range.start, fig.x_range.end) == (0, 10)


def test_limits_over_time_has_a_colour_for_each_cause():
    assert list(CAUSE_LABELS) == list(CAUSE_COLOURS) == list(CAUSES)
    assert len(set(CAUSE_COLOURS.values())) == len(CAUSES)


def test_limits_over_time_of_a_run_without_graph_is_a_text(run):
    without = Run(run.tree.copy())
    del without.tree["submissions"]
    fig = limits_over_time(without)

    assert fig.html_attributes["aria-label"] == (
        "What bound the run? The dependencies of the tasks, or the duration, were not recorded."
    )
