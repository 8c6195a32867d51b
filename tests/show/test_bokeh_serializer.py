"""The fast serializer gives the same result as Bokeh's own."""

from __future__ import annotations

import time
import warnings

import pytest
from bokeh.core.has_props import HasProps
from bokeh.core.property.descriptors import UnsetValueError
from bokeh.core.serialization import Serializer
from bokeh.document import Document
from bokeh.model import util
from bokeh.models import Range1d, Select, Slider

from benchkit._compat import bokeh_serializer
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.show.dashboard import app
from benchkit.show.dashboard.run.page import live_figures
from benchkit.show.dashboard.state.time_window import Window
from benchkit.store.run import Run
from validation.history_data import FASTER, SLOWER, fill

bokeh_query = HasProps.query_properties_with_values
bokeh_visit = util.visit_immediate_value_references


@pytest.fixture
def use_fast():
    """Yield a function that turns the fast serializer on or off; turn it off after the test."""

    def turn(on):
        if on:
            assert bokeh_serializer.install_fast_serializer(), (
                "this release of Bokeh writes models differently"
            )
        else:
            HasProps.query_properties_with_values = bokeh_query
            util.visit_immediate_value_references = bokeh_visit

    yield turn
    turn(False)


def both(use_fast, model):
    """Return the output of Bokeh's serializer and of the fast one, each with its model ids.

    The fast one runs first, because Bokeh's own creates the default values that it reads.
    """
    found = []
    for on in (True, False):
        use_fast(on)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numbers that base64 encodes differently
            parts = [part.id for part in util.collect_models(model)]
            found.append({**Serializer(deferred=False).encode(model), "parts": parts})
    return found[::-1]


@pytest.mark.parametrize("view", ["overview", "history", "workloads", "environments", "runs"])
def test_serializer_page_is_unchanged(tmp_path, a_run, monkeypatch, use_fast, view):
    store = fill(tmp_path / "store", a_run, n_nights=6)
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    root = app.VIEWS[view].view({"workload": SLOWER, "compare": FASTER}).get_root()

    expected, actual = both(use_fast, root)

    assert actual == expected
    assert len(root.references()) > 10


@pytest.mark.parametrize("tab", ["overview", "tasks", "stacks", "transfers", "machines", "facts"])
def test_serializer_run_page_is_unchanged(a_run, use_fast, tab):
    run = Run(a_run)
    root = live_figures(Window(run, TaskTimeline(a_run), {"tab": tab})).get_root()

    expected, actual = both(use_fast, root)

    assert actual == expected
    assert len(root.references()) > 50


def test_run_page_takes_longer_without_serializer(a_run, use_fast):
    run, timeline = Run(a_run), TaskTimeline(a_run)

    def page_s(fast):
        """Return the CPU seconds to build and serialize the page; the least of five times."""
        use_fast(fast)
        seconds = []
        for _ in range(5):
            began = time.process_time()
            document = Document()
            document.add_root(live_figures(Window(run, timeline, {"tab": "overview"})).get_root())
            document.to_json(deferred=False)
            seconds.append(time.process_time() - began)
        return min(seconds)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that base64 encodes differently
        # 1.29 to 1.32 on an idle core. At 1.25 or less the serializer is not worth its code.
        assert page_s(fast=False) > 1.15 * page_s(fast=True)


def test_serializer_includes_theme_values(use_fast):
    themed = Select(options=["a"])
    themed.apply_theme({"title": "from the theme"})

    expected, actual = both(use_fast, themed)

    assert actual == expected
    assert actual["attributes"]["title"] == "from the theme"


def test_serializer_requires_values(use_fast):
    use_fast(True)

    with pytest.raises(UnsetValueError, match="value"):
        Serializer().encode(Slider(start=0, end=1))


def test_query_include_defaults_returns_defaults(use_fast):
    use_fast(False)
    expected = Range1d(start=1).properties_with_values()
    use_fast(True)

    assert Range1d(start=1).properties_with_values() == expected
    assert expected["min_interval"] is None


@pytest.mark.parametrize(
    "other", [lambda self, query, **how: {}, lambda self: {}], ids=["differs", "fails"]
)
def test_install_falls_back_with_warning(monkeypatch, use_fast, other):
    monkeypatch.setattr(bokeh_serializer, "_fast_query", other)

    with pytest.warns(RuntimeWarning, match="fast serializer not used"):
        assert not bokeh_serializer.install_fast_serializer()

    assert HasProps.query_properties_with_values is bokeh_query
    assert util.visit_immediate_value_references is bokeh_visit
