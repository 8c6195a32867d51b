"""Changed rows of a comparison say what moved."""

from __future__ import annotations

import pandas as pd
import pytest

from benchkit.analysis.compare.compare_runs import compare
from benchkit.analysis.compare.row_causes import with_causes
from benchkit.errors import UnreadableRun
from benchkit.store.run import Run
from validation.graph_runs import MadeTask, graph_run

WORKLOADS = ("x.same", "x.slow")


def fetching(folder, fetch):
    """Return a run of which the last task fetches the result of the first."""
    tasks = [
        MadeTask("load-0", 0, 2),
        MadeTask(
            "sum-0", 2 + fetch, 3 + fetch, ["load-0"], worker=1, thread=1,
            events=[("transfer", 2, 2 + fetch)],
        ),
    ]  # fmt: skip
    folder.mkdir(parents=True)
    return graph_run(folder, tasks, duration=3 + fetch, n_workers=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of each workload and arm by id; the fetches of `x.slow` are 2 s longer in B."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        f"{arm}-{workload}-{n}": fetching(
            folder / arm / workload / str(n), 1 + 0.01 * n + 2 * (arm == "B") * ("slow" in workload)
        )
        for arm in "AB"
        for workload in WORKLOADS
        for n in range(3)
    }


def compared(runs):
    rows = [
        {
            "id": run_id, "workload": run_id.split("-")[1], "outcome": "ok", "comparable": True,
            "arm": run_id[0], "block": 0, "order": 0, "duration": run.metrics["duration"],
            "memory_peak": 1e9,
        }
        for run_id, run in runs.items()
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    sides = [table[table["arm"] == arm] for arm in "AB"]
    return compare(*sides, metrics=["duration", "memory_peak"], blocked=False)


def test_with_causes_explains_only_changed_durations(runs):
    opened = []
    comparison = compared(runs)
    found = with_causes(comparison, lambda run_id: opened.append(run_id) or runs[run_id])

    assert found.causes == [
        "x.slow, duration: +2.00 s waiting for transfers (sum); "
        "the largest lower bound is network (3.01 s), it was critical path (3.00 s)."
    ]
    assert {run_id.split("-")[1] for run_id in opened} == {"x.slow"}
    assert len(opened) == 6
    assert found.to_table().endswith("\n\n" + found.causes[0])
    assert f"\n- {found.causes[0]}\n" in found.to_markdown()
    assert f"<li>{found.causes[0]}</li>" in found._repr_html_()
    causes = {(row["workload"], row["metric"]): row["cause"] for row in found.to_records()}
    assert sum(cause != "" for cause in causes.values()) == 1
    assert causes["x.slow", "duration"].startswith("+2.00 s waiting for transfers (sum)")


def test_with_causes_says_once_why_causes_are_unknown(runs):
    def open_run(run_id):
        run = Run(runs[run_id].tree.copy())
        del run.tree["submissions"]
        return run

    comparison = compared(runs)
    found = with_causes(comparison, open_run)

    assert found.causes == []
    (warning,) = [text for text in found.warnings if text not in comparison.warnings]
    assert warning.startswith("cause unknown for 1 changed row: run ")
    assert "the dependencies of its tasks were not recorded" in warning


def test_with_causes_accepts_missing_run_files(runs):
    def open_run(run_id):
        raise UnreadableRun(f"{run_id}: damaged")

    found = with_causes(compared(runs), open_run)

    assert found.causes == []
    assert found.warnings[-1] == "cause unknown for 1 changed row: A-x.slow-0: damaged"
