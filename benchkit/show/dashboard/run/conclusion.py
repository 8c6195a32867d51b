"""The conclusion at the top of a run's page: where the time went, and what to change."""

from __future__ import annotations

import pandas as pd
from panel.viewable import Viewable

from benchkit.analysis.insight.diagnose import Diagnosis, diagnose
from benchkit.analysis.insight.limits import run_limits
from benchkit.formatting import format_quantity
from benchkit.show.dashboard.components import tables, ui
from benchkit.store.run import Run
from benchkit.store.task_graph import has_task_graph

__all__ = ["conclusion"]


def conclusion(run: Run) -> list[Viewable]:
    """Return the conclusion, its evidence and the findings of the diagnosis.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    list of Viewable
        Empty for a run without a measured duration.
    """
    if "duration" not in run.metrics:
        return []
    diagnosis = diagnose(run)
    content: list[Viewable] = [ui.heading("Where the time went", _text(run, diagnosis))]
    if diagnosis.findings:
        content.append(_findings(diagnosis))
    if diagnosis.conclusion:
        content.append(_causes(run))
    return content


def _text(run: Run, diagnosis: Diagnosis) -> str:
    sentences = [*diagnosis.conclusion]
    if not has_task_graph(run.tree):
        sentences.append("Dependencies of tasks were not recorded: fewer rules apply.")
    sentences.append(f"Diagnosis: {diagnosis.sentence}.")
    return " ".join(sentences)


def _findings(diagnosis: Diagnosis) -> Viewable:
    rows = [
        {
            "finding": found.what,
            "cost": format_quantity(found.seconds, "s"),
            "evidence": found.evidence,
            "change": found.change,
        }
        for found in diagnosis.findings
    ]
    return tables.table(pd.DataFrame(rows).set_index("finding"), "finding", sortable=False)


def _causes(run: Run) -> Viewable:
    limits = run_limits(run)
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
