"""Render the Jinja templates in the folders of this package.

Values in HTML are escaped. Templates of Markdown escape with the filters ``text``, ``code`` and
``fenced``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from benchkit.text import html_text, markdown_block, markdown_code, markdown_text

#: Addresses in Bokeh's scripts of libraries for TeX and maps, which these figures do not use.
_ADDRESSES = re.compile(r"https://(?:cdn\.jsdelivr\.net|maps\.googleapis\.com)[^\"'`\s]*")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html", "svg", "xml"]),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"text": markdown_text, "code": markdown_code, "fenced": markdown_block}
    environment.filters["with_code"] = lambda text: Markup(html_text(text))
    return environment


def render_template(name: str, **values: Any) -> str:
    """Render a template."""
    return _environment().get_template(name).render(values)


def load_macros(name: str) -> Any:
    """Load the macros of a template."""
    return _environment().get_template(name).module


def silent(page: str) -> str:
    """Remove the addresses from which Bokeh's scripts would load libraries."""
    return _ADDRESSES.sub("about:blank", page)
