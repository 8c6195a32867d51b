"""Render the Jinja templates in the folders of this package; values are escaped for HTML."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

__all__ = ["render_template"]


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


def render_template(name: str, **values: Any) -> str:
    """Render a template.

    Parameters
    ----------
    name : str
        Path of the template relative to ``benchkit/show``, such as ``site/files/index.html``.
    **values : object
        Variables of the template; a missing variable is an error.

    Returns
    -------
    str
        The rendered text.
    """
    return _environment().get_template(name).render(values)
