"""Render the Jinja templates in the folders of this package.

Values in HTML are escaped. Templates of Markdown escape with the filters ``text``, ``code`` and
``fenced``, the functions of `benchkit.show.markdown`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from benchkit.show import markdown

__all__ = ["render_template"]


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html", "svg", "xml"]),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {name: getattr(markdown, name) for name in ("text", "code", "fenced")}
    return environment


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
