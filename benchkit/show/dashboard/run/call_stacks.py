"""Difference of the call stacks of two runs."""

from __future__ import annotations

import panel as pn
from panel.viewable import Viewable

from benchkit.show.dashboard.components.widgets import filtered
from benchkit.show.plots.flame import flame_difference
from benchkit.show.render import panel as ui
from benchkit.store.run import Run


def stack_difference(a: Run, b: Run) -> pn.Column:
    """Return a flame graph of the differences in time per call between two runs."""

    def draw(values: dict[str, str]) -> list[Viewable]:
        plot = flame_difference(a.tree, b.tree, show_removed=bool(values["only_a"]))
        return [ui.figure(plot)]

    only_a = pn.widgets.Checkbox(name="Show calls that only A has", value=False)
    note = (
        "Widths are those of B; ▲ and red: more than in A, ▼ and blue: less. A click zooms to a "
        "call, a double click shows everything again."
    )
    return ui.column(filtered("", {"only_a": only_a}, draw), ui.paragraph(note))
