"""Show in a notebook what a run has, and one line for each part that cannot be shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython import get_ipython
from IPython.display import Markdown, display

from benchkit.errors import describe_error
from benchkit.text import markdown_text

_MARK = "benchkit missing part"


def replace_missing_parts() -> None:
    """Show one line instead of the traceback of a cell that has the tag ``raises-exception``."""
    shell = get_ipython()
    if shell is not None:
        shell.set_custom_exc((Exception,), _show_line)


def _show_line(shell: Any, kind: type, error: Exception, trace: Any, tb_offset: Any = None) -> list:
    reason = describe_error(error)
    if isinstance(error, NameError):
        reason = "it needs a part above that cannot be shown"
    text = f"This part cannot be shown: {reason}"
    display(Markdown(f"**{markdown_text(text)}**"), metadata={_MARK: text})
    return []


def missing_parts(notebook: Mapping[str, Any]) -> list[str]:
    """Return the lines of the parts of an executed notebook that cannot be shown."""
    outputs = (out for cell in notebook["cells"] for out in cell.get("outputs", ()))
    return [str(out["metadata"][_MARK]) for out in outputs if _MARK in out.get("metadata", ())]
