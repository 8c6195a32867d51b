from pathlib import Path

import pytest

from benchkit import Store
from benchkit.show.plots.run import memory_by_kind, task_group_bars, task_stream

STORE = Path(__file__).parents[1] / "data" / "1"


@pytest.mark.parametrize("draw", [memory_by_kind, task_group_bars, task_stream])
def test_a_figure_has_a_title_units_and_a_name(draw):
    store = Store(STORE, create=False)
    drawn = draw(store.open(store.runs(outcome="ok")["id"].iloc[0]))

    assert drawn.title.text.endswith(("?", ")"))
    assert "(" in drawn.xaxis[0].axis_label
    assert drawn.html_attributes["aria-label"] == drawn.title.text
    assert drawn.renderers
