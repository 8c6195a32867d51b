"""Write an executed notebook as one HTML page: no code, no network, light and dark theme."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbconvert import HTMLExporter, TemplateExporter
from nbconvert.filters import Highlight2HTML

from benchkit.show.templates import render_template, silent
from benchkit.whole_file import write_whole


def notebook_page(notebook: str | Path, output: str | Path, *, title: str) -> Path:
    """Write an executed notebook as one HTML file that makes no network requests."""
    content = nbformat.read(str(notebook), as_version=4)
    # Drop stderr: warnings and logs are for the person who executes the notebook.
    for cell in content.cells:
        if cell.cell_type == "code":
            outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
            cell.outputs = [_without_jquery(out) for out in outputs]
    exporter = HTMLExporter(
        template_name="basic",  # body only: the full templates load four scripts from a CDN
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    exporter.register_filter("highlight_code", Highlight2HTML())
    # Not the method of HTMLExporter: it parses what it made once more, which takes 0.3 s.
    body, _ = TemplateExporter.from_notebook_node(exporter, content)
    page = silent(render_template("reports/page.html", title=title, body=body))
    output = Path(output)
    write_whole(output, page)
    return output


def _without_jquery(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Convert a script output to HTML, because the template of nbconvert needs jQuery for it."""
    script = output.get("data", {}).get("application/javascript")
    if script is not None:
        output.data = nbformat.from_dict({"text/html": f"<script>{script}</script>"})
    return output
