"""Views of runs with damaged parts: the other parts are shown, and a line in place of each."""

import logging
import re

import panel as pn
import pytest

from benchkit.measure.run_ids import new_id
from benchkit.show.dashboard.app import VIEWS, _content
from benchkit.show.dashboard.nights import overview
from validation.dashboard_server import with_record


def fill(tree, name, value):
    tree[name].values[:] = value


DAMAGES = {
    "names of tasks": lambda tree: fill(tree, "tasks/key_blob", 0),
    "groups of tasks": lambda tree: fill(tree, "tasks/group", 10**6),
    "workers of tasks": lambda tree: fill(tree, "tasks/worker", 10**6),
    "calls": lambda tree: fill(tree, "profile/parent", 10**6),
    "kinds of events": lambda tree: tree["task_events"].attrs.update(actions="{no json"),
    "texts": lambda tree: tree.attrs.update(config="{no json", packages="[1", logs="[1"),
}
TABS = ("overview", "tasks", "memory", "stacks", "transfers", "machines", "trouble", "facts")


@pytest.fixture
def damaged(nightly_store, a_run, request):
    tree = a_run.copy(deep=True)
    DAMAGES[request.param](tree)
    run = with_record(tree, id=new_id())
    nightly_store.add(run)
    return nightly_store, run


def text_of(view):
    """Return the text of a view without its tags."""
    panes = (re.sub(r"<[^>]+>", " ", str(pane.object)) for pane in view.select(pn.pane.HTML))
    return " ".join(" ".join(panes).split())


@pytest.mark.parametrize("damaged", DAMAGES, indirect=True)
def test_run_views_show_what_a_damaged_run_has(damaged, a_run):
    store, run = damaged
    store.add(with_record(a_run, id=(good := new_id())))
    states = [{"view": "run", "id": run.attrs["id"], "tab": tab} for tab in TABS]
    states.append({"view": "pair", "a": good, "b": run.attrs["id"]})

    for state in states:
        text = text_of(_content(state["view"], state))

        assert "This page cannot be shown" not in text, state
        assert text.count("cannot be shown") <= 2, state
        assert run.attrs["workload"] in text
        assert "wall time" in text or state["view"] == "pair"


@pytest.mark.filterwarnings("ignore:regression handmade. skipped")
@pytest.mark.parametrize("damaged", DAMAGES, indirect=True)
@pytest.mark.parametrize("name", [name for name in VIEWS if name not in ("run", "pair")])
def test_lists_show_all_of_a_store_with_a_damaged_run(damaged, name):
    store, run = damaged
    opened = next(event for event in store.events() if event["kind"] == "opened")
    event = {**opened, "regression": "handmade", "facts": ["text"]}
    store.add_event(event.pop("kind"), **{key: event[key] for key in event if key != "id"})

    text = text_of(_content(name, {"view": name}))
    about = {"workloads": {"name": run.attrs["workload"]}, "environments": {"name": "current"}}
    text += text_of(_content(name, {"view": name, **about.get(name, {})}))

    assert "cannot be shown" not in text


@pytest.mark.parametrize("name", VIEWS)
def test_error_of_a_view_is_one_line_there_and_a_traceback_in_the_log(name, monkeypatch, caplog):
    def view(state):
        raise KeyError("first\nsecond")

    monkeypatch.setattr(VIEWS[name], "view", view)
    with caplog.at_level(logging.ERROR):
        text = text_of(_content(name, {"view": name}))

    assert text == r"This page cannot be shown KeyError: &#x27;first\nsecond&#x27;"
    assert "Traceback" in caplog.text


def test_error_of_a_list_leaves_its_filters(nightly_store, monkeypatch, caplog):
    monkeypatch.setattr(overview, "_last_month", lambda: 1 / 0)

    page = overview.view({"view": "overview"})
    monkeypatch.undo()
    monkeypatch.setenv("BENCHKIT_STORE", str(nightly_store.path))
    broken = text_of(page)
    (find,) = page.select(pn.widgets.TextInput)
    find.value = "array"

    assert broken == "This part cannot be shown ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in caplog.text
    assert "array." in text_of(page)
