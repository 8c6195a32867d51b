"""The conclusion at the top of a run's page: where the time went, and what to change."""

from __future__ import annotations

import pandas as pd
from panel.viewable import Viewable

from benchkit.analysis.insight.blame import CAUSES
from benchkit.analysis.insight.diagnose import Diagnosis, diagnose
from benchkit.analysis.insight.limits import BOUNDS, Limits
from benchkit.formatting import format_quantity
from benchkit.show.dashboard.components import tables, ui
from benchkit.show.dashboard.components.markup import link
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.dashboard.state.url import address
from benchkit.show.plots.thread_activity import limits_over_time
from benchkit.store.run import Run
from benchkit.store.task_graph import has_task_graph

__all__ = ["conclusion"]


#: How the causes are found.
HOW_COMPUTED = (
    "Computed from the last task back to the start of the clock: each moment has the cause that "
    "the next step of the run waited for then. The causes sum to the duration."
)


def conclusion(window: Window) -> list[Viewable]:
    """Return the conclusion, its evidence and the findings of the diagnosis."""
    run = window.run
    if "duration" not in run.metrics:
        return []
    diagnosis = diagnose(run)
    content: list[Viewable] = [ui.heading("Where the time went", _text(run, diagnosis))]
    if diagnosis.findings:
        content.append(_findings(window, diagnosis))
    if diagnosis.limits:
        strip = limits_over_time(run, diagnosis.limits)
        window.share(strip)
        content += [
            ui.figure(strip),
            ui.paragraph(HOW_COMPUTED),
            _causes(diagnosis.limits),
            tables.glossary({**BOUNDS, **CAUSES}),
        ]
    return content


def _text(run: Run, diagnosis: Diagnosis) -> str:
    sentences = [*diagnosis.conclusion]
    if not has_task_graph(run.tree):
        sentences.append("Dependencies of tasks were not recorded: fewer rules apply.")
    sentences.append(f"Diagnosis: {diagnosis.sentence}.")
    return " ".join(sentences)


def _findings(window: Window, diagnosis: Diagnosis) -> Viewable:
    """Return the findings; each links to the part of the run that shows it."""
    workers = window.run.tree["workers"].to_dataset()["name"].values.astype(str).tolist()
    rows = []
    for found in diagnosis.findings:
        start, stop = found.window or window.whole
        keys = {
            "from": f"{start:.6g}",
            "to": f"{stop:.6g}",
            "group": found.group,
            "worker": workers.index(found.worker) if found.worker in workers else "",
        }
        rows.append(
            [
                link(found.what, address("run", **window.state(tab="tasks", **keys))),
                format_quantity(found.seconds, "s"),
                found.evidence,
                found.change,
                diagnosis.proof(found),
            ]
        )
    return tables.html_table(["finding", "cost", "evidence", "change", "to prove it"], rows)


def _causes(limits: Limits) -> Viewable:
    rows = [
        {
            "what": row["name"],
            "kind": {"bound": "lower bound", "cause": "cause of wall time"}[row["kind"]],
            "seconds": format_quantity(row["seconds"], "s"),
            "share of the duration": f"{row['share']:.1%}",
        }
        for row in limits.to_records()
        if row["kind"] in ("bound", "cause")
    ]
    return tables.table(pd.DataFrame(rows).set_index("what"), "what", sortable=False)
