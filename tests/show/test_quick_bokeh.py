"""What Bokeh is made to write quickly is what it writes by itself."""

from __future__ import annotations

import warnings

import pytest
from bokeh.core.has_props import HasProps
from bokeh.core.property.descriptors import UnsetValueError
from bokeh.core.serialization import Serializer
from bokeh.model import util
from bokeh.models import Range1d, Select, Slider
from helpers.history_data import FASTER, SLOWER, fill

from benchkit._compat import bokeh_serializer as quick_bokeh
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.show.dashboard import app
from benchkit.show.dashboard.run.page import pieces
from benchkit.show.dashboard.state.time_window import Window
from benchkit.store.run import Run

usual = HasProps.query_properties_with_values
usual_walk = util.visit_immediate_value_references


@pytest.fixture
def quick():
    """Return what turns it on, or off; off in the end."""

    def turn(on):
        if on:
            assert quick_bokeh.install_fast_serializer(), (
                "this release of Bokeh writes models differently"
            )
        else:
            HasProps.query_properties_with_values = usual
            util.visit_immediate_value_references = usual_walk

    yield turn
    turn(False)


def both(quick, model):
    """Return what is written of a model by Bokeh itself, and quickly: it, and what it is made of.

    Quickly first: Bokeh's own way leaves traces of the defaults that it asked for.
    """
    found = []
    for on in (True, False):
        quick(on)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numbers that base64 says in other words
            parts = [one.id for one in util.collect_models(model)]
            found.append({**Serializer(deferred=False).encode(model), "parts": parts})
    return found[::-1]


@pytest.mark.parametrize("view", ["overview", "history", "workloads", "environments", "runs"])
def test_as_much_is_sent_of_a_page(tmp_path, a_run, monkeypatch, quick, view):
    store = fill(tmp_path / "store", a_run, n_nights=6)
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    root = app.VIEWS[view].view({"workload": SLOWER, "compare": FASTER}).get_root()

    slowly, quickly = both(quick, root)

    assert quickly == slowly
    assert len(root.references()) > 10


@pytest.mark.parametrize("tab", ["overview", "tasks", "stacks", "transfers", "machines", "facts"])
def test_as_much_is_sent_of_a_run(a_run, quick, tab):
    run = Run(a_run)
    root = pieces(Window(run, TaskTimeline(a_run), {"tab": tab})).get_root()

    slowly, quickly = both(quick, root)

    assert quickly == slowly
    assert len(root.references()) > 50


def test_what_a_theme_sets_is_sent(quick):
    themed = Select(options=["a"])
    themed.apply_theme({"title": "from the theme"})

    slowly, quickly = both(quick, themed)

    assert quickly == slowly
    assert quickly["attributes"]["title"] == "from the theme"


def test_what_must_be_set_is_still_missed(quick):
    quick(True)

    with pytest.raises(UnsetValueError, match="value"):
        Serializer().encode(Slider(start=0, end=1))


def test_who_asks_for_defaults_gets_them(quick):
    quick(False)
    slowly = Range1d(start=1).properties_with_values()
    quick(True)

    assert Range1d(start=1).properties_with_values() == slowly
    assert slowly["min_interval"] is None


@pytest.mark.parametrize(
    "other", [lambda self, query, **how: {}, lambda self: {}], ids=["differs", "fails"]
)
def test_another_bokeh_is_left_as_it_is(monkeypatch, quick, other):
    monkeypatch.setattr(quick_bokeh, "_quick", other)

    assert not quick_bokeh.install_fast_serializer()

    assert HasProps.query_properties_with_values is usual
    assert util.visit_immediate_value_references is usual_walk
