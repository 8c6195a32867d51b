"""Placeholder shown while the browser loads the scripts and figures of a page."""

from __future__ import annotations

__all__ = ["placeholder"]

_HEAD = "<i class='title'></i><i class='line'></i>"
_FIGURES = "<div class='figures'><i></i><i></i><i></i></div>"
_ROWS = "<div class='rows'>" + "<i></i>" * 16 + "</div>"
_PLOT = "<i class='plot'></i>"
#: Placeholder of a view, by name; all other views show a table.
_SHAPES = {
    "run": _HEAD + _FIGURES + "<i class='strip'></i>" + _PLOT * 3,
    "pair": _HEAD + "<i class='strip'></i>" + _PLOT * 3,
    "history": _HEAD + _FIGURES + _PLOT * 3,
}


def placeholder(view: str) -> str:
    """Return the placeholder of a view as HTML.

    Parameters
    ----------
    view : str
        Name of the view.

    Returns
    -------
    str
        HTML of the placeholder.
    """
    shape = _SHAPES.get(view, _HEAD + _ROWS)
    status = "<span class='visually-hidden'>Loading the page …</span>"
    return f"<div class='placeholder' role='status'>{status}{shape}</div>"
