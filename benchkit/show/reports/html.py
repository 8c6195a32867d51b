"""Write an executed notebook as one HTML page: no code, no network, light and dark theme."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter

from benchkit.show.escape import escape

__all__ = ["notebook_page", "silent"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2530; --soft: #5d6b7a; --line: #d9dfe5; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ec; --soft: #9aa7b4; --line: #37424d; --paper: #171c21; }
}
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; border-top: 1px solid var(--line);
  padding-top: 1.2rem; }
h4 { font-size: 1.05rem; margin: 1rem 0 .3rem; }
p { margin: .4rem 0; max-width: 46rem; }
.anchor-link { display: none; }
table { border: 0; border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; }
.jp-OutputArea-output, .output_html { overflow-x: auto; }
td, th { border: 0 !important; border-bottom: 1px solid var(--line) !important;
  padding: .22rem .9rem .22rem 0; text-align: left; vertical-align: top; font-weight: 400; }
thead th { color: var(--soft); font-size: .85rem; }
td { overflow-wrap: break-word; }
pre, code { font: 13px/1.45 ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; }
pre { overflow-x: auto; white-space: pre-wrap; margin: .5rem 0; }
code { overflow-wrap: anywhere; }
.benchkit-bad { color: #b3261e; }
@media (prefers-color-scheme: dark) { .benchkit-bad { color: #ff8a80; } }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
"""

#: Content security policy: the browser blocks all network requests of the page.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
#: Addresses in Bokeh's scripts of libraries for TeX and maps, which these figures do not use.
_ADDRESSES = re.compile(r"https://(?:cdn\.jsdelivr\.net|maps\.googleapis\.com)[^\"'`\s]*")


def notebook_page(notebook: str | Path, output: str | Path, *, title: str) -> Path:
    """Write an executed notebook as one HTML file that makes no network requests.

    Parameters
    ----------
    notebook : path
        An executed notebook; its figures include their scripts (Bokeh's inline resources).
    output : path
        The file to write; its folder is created if missing.
    title : str
        Title of the page.

    Returns
    -------
    Path
        `output`.
    """
    content = nbformat.read(str(notebook), as_version=4)
    # Drop stderr: warnings and logs are for the person who executes the notebook.
    for cell in content.cells:
        if cell.cell_type == "code":
            cell.outputs = [_plain(out) for out in cell.outputs if out.get("name") != "stderr"]
    exporter = HTMLExporter(
        template_name="basic",  # body only: the full templates load four scripts from a CDN
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    body, _ = exporter.from_notebook_node(content)
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>{body}"
        "</main>\n</body>\n</html>\n"
    )
    page = silent(page)
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(f".{output.name}.part")
    draft.write_text(page, encoding="utf-8")
    draft.replace(output)
    return output


def silent(page: str) -> str:
    """Return a page without the addresses from which Bokeh's scripts would load libraries."""
    return _ADDRESSES.sub("about:blank", page)


def _plain(output: Any) -> Any:
    """Return a script output as HTML that works without a notebook (the template needs jQuery)."""
    script = output.get("data", {}).get("application/javascript")
    if script is not None:
        output.data = nbformat.from_dict({"text/html": f"<script>{script}</script>"})
    return output
