"""Draw pages in cells of a notebook; available as ``benchkit.pages``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from IPython.display import HTML, display

from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.regression.history import DEFAULT_METRICS, build_history
from benchkit.analysis.regression.regression import read_ledger
from benchkit.analysis.regression.status import workload_owners
from benchkit.errors import UsageError, describe_error, did_you_mean
from benchkit.experiment.nightly.night import Night, read_night
from benchkit.show.pages import comparison as comparison_page
from benchkit.show.pages import history as history_page
from benchkit.show.pages import night as night_page
from benchkit.show.pages import run as run_page
from benchkit.show.pages.page import MISSING_PART, Content, Figure, Page, Section, Table
from benchkit.show.render.html import (
    ELEMENT_STYLES,
    ELEMENTS,
    content_markup,
    head_markup,
    page_markup,
    static_figure,
)
from benchkit.show.render.markdown import MAX_ROWS, no_address, page_markdown, section_markdown
from benchkit.store.marks import active_marks
from benchkit.store.run import Run
from benchkit.store.schema import METRICS
from benchkit.store.store import Store

__all__ = ["history", "night", "run"]

_STYLES = (Path(__file__).parent / "notebook.css").read_text(encoding="utf-8")


def run(
    run: Run, *, start: float | None = None, stop: float | None = None, group: str = ""
) -> NotebookPage:
    """Return the page of a run, to show its parts in a notebook.

    Parameters
    ----------
    run : Run
        The run.
    start, stop : float, optional
        Show what happened between these times, in s after clock on; by default in the whole run.
        What was not recorded over time is that of the whole run, and says so.
    group : str, optional
        Show the tasks and transfers of this task group, too.

    Returns
    -------
    NotebookPage
        Shows outcome and key figures; ``page["memory"]`` shows a section.

    Examples
    --------
    >>> page = benchkit.pages.run(store.open("latest"))  # doctest: +SKIP
    >>> page["memory"]  # doctest: +SKIP
    """
    if not isinstance(run, Run):
        raise UsageError(f"pages.run takes a Run, not {run!r}: open runs with Store.open")
    data = run_page.RunData.read(run)
    left, right = data.whole
    state = {"group": group}
    if start is not None or stop is not None:
        ends = (left if start is None else start, right if stop is None else stop)
        if not ends[0] < ends[1]:
            raise UsageError(f"start={start}, stop={stop}: must be times with start below stop")
        state |= {"from": f"{ends[0]:.9g}", "to": f"{ends[1]:.9g}"}
    return NotebookPage(run_page.page(data, state))


def history(store: Store, workload: str) -> NotebookPage:
    """Return the page of a workload over nights, to show its parts in a notebook.

    Parameters
    ----------
    store : Store
        The store of the runs.
    workload : str
        Full name of a variant. Runs without a night are of the day on which they started.

    Returns
    -------
    NotebookPage
        ``page["duration"]``, or another metric, shows its figures; ``page["changes"]`` the changes.

    Raises
    ------
    UsageError
        The store has no comparable runs of the workload.

    Examples
    --------
    >>> page = benchkit.pages.history(store, "array.sum")  # doctest: +SKIP
    >>> page["duration"]  # doctest: +SKIP
    """
    marks = store.marks()
    runs = store.runs()
    measured = [name for name in METRICS if name in runs and runs[name].notna().any()]
    nights = build_history(runs, metrics=measured, marks=marks)
    nights = nights.select(workload=workload)
    if not len(nights):
        hint = did_you_mean(workload, sorted(set(runs["workload"])), "see `benchkit list runs`")
        raise UsageError(f"no nights of workload {workload!r}: {hint}")
    regressions, owners = read_ledger(store.events(), marks), workload_owners(nights.runs)
    data = history_page.WorkloadNights(
        workload, nights, regressions, active_marks(marks), owners.get(workload, "")
    )
    return NotebookPage(history_page.page(data))


def night(
    results: Night | Store, night: str = "latest", *, metrics: Sequence[str] = DEFAULT_METRICS
) -> NotebookPage:
    """Return the page of a night, to show its parts in a notebook.

    Parameters
    ----------
    results : Night or Store
        What `benchkit.nightly` returned, or a store.
    night : str, default "latest"
        Time of a night of the store, as `benchkit.nightly` names it.
    metrics : sequence of str
        The metrics to show.

    Returns
    -------
    NotebookPage
        ``page["changes"]`` shows what changed, ``page["duration"]`` the series of a metric,
        ``page["regressions"]`` the ledger.

    Raises
    ------
    UsageError
        The night was not judged.

    Examples
    --------
    >>> page = benchkit.pages.night(store)  # doctest: +SKIP
    >>> page["changes"]  # doctest: +SKIP
    """
    judged = results if isinstance(results, Night) else read_night(results, night)
    history, series = night_page.judged_series(judged, metrics)
    page = night_page.page(judged, series, {"show": "news"})
    more = night_page.ledger_sections(judged, history)
    return NotebookPage(replace(page, sections=[*page.sections, *more]))


def comparison_html(comparison: Comparison) -> str:
    """Return the page of a comparison for a cell of a notebook."""
    page = comparison_page.page(comparison_page.ComparedRuns(comparison), {})
    return _styled(page_markup(page, no_address))


class NotebookPage:
    """A page in a notebook: it shows its head, and each section under its key.

    Parameters
    ----------
    page : Page
        What the page says.

    Examples
    --------
    >>> page.keys()  # doctest: +SKIP
    >>> page["memory"]  # doctest: +SKIP
    """

    def __init__(self, page: Page) -> None:
        self._page = page

    def __getitem__(self, key: str) -> NotebookSection:
        if key not in self.keys():
            hint = did_you_mean(str(key), self.keys(), f"it has {', '.join(self.keys())}")
            raise UsageError(f"this page has no section {key!r}: {hint}")
        return NotebookSection([each for each in self._page.sections if each.key == key])

    def keys(self) -> list[str]:
        """Return the keys of the sections, in their order.

        Returns
        -------
        list of str
            The keys.
        """
        return list(dict.fromkeys(each.key for each in self._page.sections if each.key))

    _ipython_key_completions_ = keys

    def show(self) -> None:
        """Show all sections below each other."""
        NotebookSection(self._page.sections)._ipython_display_()

    def to_markdown(self) -> str:
        """Return the page as Markdown, without its figures.

        Returns
        -------
        str
            The text.
        """
        return page_markdown(self._page)

    def __repr__(self) -> str:
        return f"{self._page.title} {self._page.state.text}: {', '.join(self.keys())}"

    def _repr_html_(self) -> str:
        return _styled(head_markup(self._page))


class NotebookSection:
    """A part of a page: its question, and tables and figures that answer it."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self._sections = sections

    def __repr__(self) -> str:
        return "\n\n".join(map(section_markdown, self._sections))

    def _ipython_display_(self) -> None:
        show(self._sections)


def show(content: Page | Section | Sequence[Section]) -> None:
    """Show a page or sections of it."""
    if isinstance(content, Page):
        display(HTML(_styled(head_markup(content))))
        content = content.sections
    for section in [content] if isinstance(content, Section) else content:
        _show(section)


def _show(section: Section) -> None:
    text = str(ELEMENTS.heading(section.title, section.note))
    try:
        contents = section.contents()
    except Exception as error:  # of a damaged run, whose other parts can be shown
        display(HTML(_styled(text)))
        show_missing_part(describe_error(error))
        return
    if not contents:
        text += str(ELEMENTS.paragraph("Nothing was recorded."))
    for content in contents:
        if not isinstance(content, Figure):
            text += _markup(content)
            continue
        if text:
            display(HTML(_styled(text)))
            text = ""
        try:
            display(static_figure(content))
        except Exception as error:
            show_missing_part(describe_error(error))
    if text:
        display(HTML(_styled(text)))


def show_missing_part(reason: str) -> None:
    """Show a line in place of a part; `missing_parts` finds it in an executed notebook."""
    line = f"This part cannot be shown: {reason}"
    markup = _styled(str(ELEMENTS.paragraph(line, "bad")))
    display(HTML(markup), metadata={MISSING_PART: line})


def _markup(content: Content) -> str:
    more = ""
    if isinstance(content, Table) and len(content.rows) > MAX_ROWS:
        more = str(ELEMENTS.paragraph(f"and {len(content.rows) - MAX_ROWS:,} more"))
        content = replace(content, rows=content.rows[:MAX_ROWS])
    return content_markup(content, no_address) + more


def _styled(markup: str) -> str:
    """Return markup with its styles, which other outputs of the notebook do not get."""
    styles = f"{_STYLES}.benchkit {{ {ELEMENT_STYLES} }}"
    return f"<div class='benchkit'><style>{styles}</style>{markup}</div>"
