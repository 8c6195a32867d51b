"""Write reports: execute a notebook with parameters and save it as an HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchkit.errors import MissingParts, needs_extra
from benchkit.experiment.environment.environment import CURRENT
from benchkit.experiment.environment.lookup import find_environment
from benchkit.experiment.paths import notebook_path
from benchkit.experiment.run.kernel import MeasuringKernel
from benchkit.experiment.run.plan import read_plan
from benchkit.private_folder import private_folder
from benchkit.store.storage import verify
from benchkit.store.store import Store
from benchkit.text import cut_markdown
from benchkit.whole_file import write_whole

if TYPE_CHECKING:
    from benchkit.analysis.compare.comparison import Comparison

#: Timeout of one cell in seconds; drawing a run of a million tasks takes seconds.
CELL_TIMEOUT_S = 600.0
#: GitHub rejects comments above 65,536 characters.
MAX_COMMENT_BYTES = 60_000


def run_report(store: Store, run_id: str = "latest", output: str | Path | None = None) -> Path:
    """Write the detailed report of one run as an HTML page."""
    run_id = store.resolve(run_id)
    about = _about(store, run_id)
    title = f"{about.get('workload') or 'run'}: {about.get('outcome') or ''}"
    experiment, name = str(about.get("experiment") or run_id), f"run-{run_id}.html"
    parameters = {"run": run_id}
    return _report(store, "run", parameters, title, output=output, experiment=experiment, name=name)


def _about(store: Store, run_id: str) -> dict[Any, Any]:
    """Return workload, outcome and experiment of a run, whose file is whole."""
    columns = ["workload", "outcome", "experiment"]
    # Not from the file, which another process opens: here xarray would take 0.3 s.
    rows = store.runs(columns=columns, id=run_id).astype(object).fillna("").to_dict("records")
    with suppress(FileNotFoundError):  # `Store.open` says so
        verify(store.file(run_id))
        if rows:
            return {str(name): value for name, value in rows[0].items()}
    return dict(store.open(run_id, ()).tree.attrs)


def ab_report(
    store: Store,
    experiment: str = "latest",
    *,
    metrics: Sequence[str] = (),
    folder: str | Path | None = None,
    texts: Mapping[str, str] | None = None,
) -> Path:
    """Write the comparison of the arms of an experiment as an HTML page."""
    plan = read_plan(store, experiment, n_arms=2)
    plan_id, arms = plan["id"], ", ".join(arm["name"] for arm in plan["arms"])
    parameters: dict[str, Any] = {"experiment": plan_id}
    if metrics:
        parameters["metrics"] = list(metrics)
    title = f"A/B comparison: {arms}"
    place = {"experiment": plan_id, "folder": folder}
    return _report(store, "ab", parameters, title, texts=texts, **place)


def comparison_markdown(comparison: Comparison) -> str:
    """Return the page of a comparison as Markdown, cut to the size of a comment."""
    with needs_extra("show"):
        from benchkit.show.pages.comparison import ComparedRuns, page
        from benchkit.show.render.markdown import page_markdown
    return cut_markdown(page_markdown(page(ComparedRuns(comparison), {})), MAX_COMMENT_BYTES)


def nightly_report(store: Store, night: str, output: str | Path) -> Path:
    """Write the results of a night as an HTML page."""
    parameters = {"night": night, "measure": False}
    return _report(store, "nightly", parameters, f"Night {night[:16]}", output=output)


def bisect_report(
    store: Store, bisection: str = "latest", folder: str | Path | None = None
) -> Path:
    """Write the steps of a bisection as an HTML page."""
    from benchkit.experiment.bisect.result import read_bisection

    bisection = read_bisection(store, bisection).id
    parameters = {"bisection": bisection}
    return _report(store, "bisect", parameters, "Bisection", folder=folder, experiment=bisection)


def _report(
    store: Store,
    notebook: str,
    parameters: Mapping[str, Any],
    title: str,
    *,
    output: str | Path | None = None,
    folder: str | Path | None = None,
    experiment: str = "",
    name: str = "",
    texts: Mapping[str, str] | None = None,
) -> Path:
    """Write a report on a store, and other texts in the same folder, by suffix.

    The page is `output`, or `name` (that of the notebook) in `folder`, by default in the folder of
    an experiment in the store.
    """
    parameters = {"store": store.files.address, **parameters}
    name = name or f"{notebook}.html"
    in_store = f"experiments/{experiment}/reports"
    page = Path(output or Path(folder or store.files.workspace(in_store)) / name)
    missing = _notebook_report(notebook, parameters, page, title=title)
    for suffix, text in (texts or {}).items():
        write_whole(page.with_suffix(suffix), text)
    if not (output or folder):
        store.files.publish(in_store)
        page = store.files.path(f"{in_store}/{name}")
    if missing:
        raise MissingParts(page, missing)
    return page


def _notebook_report(
    name: str, parameters: Mapping[str, Any], output: Path, *, title: str
) -> list[str]:
    """Execute a notebook; write the HTML page and the executed notebook into the same folder.

    Returns the lines of the parts that cannot be shown.
    """
    with needs_extra("show"):
        from benchkit.show.reports.html import notebook_page
        from benchkit.show.reports.missing_parts import missing_parts
    executed = output.with_suffix(".ipynb")
    with (
        private_folder() as scratch,
        MeasuringKernel(find_environment(CURRENT, []), Path(scratch)) as kernel,
    ):
        kernel.execute(notebook_path(name), executed, parameters, timeout_s=CELL_TIMEOUT_S)
    notebook_page(executed, output, title=title)
    return missing_parts(json.loads(executed.read_text(encoding="utf-8")))
