"""HTML of links and words within a line, with text from runs escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from markupsafe import Markup

from benchkit.formatting import MISSING, OUTCOME_WORDS
from benchkit.show.dashboard.state.url import address
from benchkit.text import escape

__all__ = [
    "NO_FAILURE",
    "code",
    "link",
    "outcome_text",
    "run_link",
    "span",
    "text_or_missing",
    "tone_of_outcome",
]

#: Outcomes that do not count as failures.
NO_FAILURE = ("ok", "skipped")


def link(text: str, target: str, *, label: str = "", kind: str = "") -> Markup:
    """Return a link."""
    more = f" aria-label='{escape(label)}'" if label else ""
    more += f" class='{escape(kind)}'" if kind else ""
    breakable = escape(text).replace("[", "<wbr>[").replace(",", ",<wbr>")
    return Markup(f"<a href='{escape(target)}'{more}>{breakable}</a>")


def run_link(run: Mapping[str, Any]) -> Markup:
    """Return the start time of a run as a link to its page."""
    return link(str(run["started"])[:16], address("run", id=run["id"]))


def span(text: str, kind: str = "", *, title: str = "") -> Markup:
    """Return text with a CSS class and a tooltip."""
    more = f" class='{escape(kind)}'" if kind else ""
    more += f" title='{escape(title)}'" if title else ""
    return Markup(f"<span{more}>{escape(text)}</span>")


def code(text: str) -> Markup:
    """Return text in a fixed-width font."""
    return Markup(f"<code>{escape(text)}</code>")


def outcome_text(outcome: Any) -> str:
    """Return the symbol and the words of an outcome."""
    symbol, words = OUTCOME_WORDS.get(str(outcome), ("?", str(outcome)))
    return f"{symbol} {words}"


def tone_of_outcome(outcome: Any) -> str:
    """Return the CSS class of an outcome."""
    return "soft" if outcome in NO_FAILURE else "bad"


def text_or_missing(value: Any) -> str:
    """Return a scalar as text."""
    # value: Scalar; may be None or NaN.
    # returned: The text; `MISSING` for None, NaN and empty text.
    return MISSING if value is None or pd.isna(value) or value == "" else str(value)
