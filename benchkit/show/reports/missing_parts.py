"""Show in a notebook what a run has, and one line for each part that cannot be shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchkit.errors import describe_error
from benchkit.show.pages.page import MISSING_PART


def replace_missing_parts() -> None:
    """Show one line instead of the traceback of a cell that has the tag ``raises-exception``."""
    from IPython import get_ipython  # the process that reads an executed notebook has none

    shell = get_ipython()
    if shell is not None:
        shell.set_custom_exc((Exception,), _show_line)


def _show_line(shell: Any, kind: type, error: Exception, trace: Any, tb_offset: Any = None) -> list:
    from benchkit.show.render.notebook import show_missing_part  # imports Bokeh

    reason = describe_error(error)
    if isinstance(error, NameError):
        reason = "it needs a part above that cannot be shown"
    show_missing_part(reason)
    return []


def missing_parts(notebook: Mapping[str, Any]) -> list[str]:
    """Return the lines of the parts of an executed notebook that cannot be shown."""
    outputs = (out for cell in notebook["cells"] for out in cell.get("outputs", ()))
    return [
        str(out["metadata"][MISSING_PART])
        for out in outputs
        if MISSING_PART in out.get("metadata", ())
    ]
