"""Message of the pages of nights without nights."""

from __future__ import annotations

from panel.viewable import Viewable

from benchkit.show.render import panel as ui


def no_nights(shows: str, *, title: str = "No nights yet", before: str = "") -> Viewable:
    """Return the message with the command that measures a night."""
    text = f"{before} Measure a selection every night, then this page shows {shows}:".strip()
    return ui.message(title, text, "benchkit nightly -k profile:nightly")
