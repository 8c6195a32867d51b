"""Parts of a run page in a notebook."""

import pytest
from playwright.sync_api import expect

from benchkit.store.run import Run


@pytest.mark.browser
def test_run_panel_works_in_exported_notebook(page, tmp_path, a_run):
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    from benchkit.show.reports.html import notebook_page

    shown = new_output("display_data", data=Run(a_run).panel()._repr_mimebundle_())
    nbformat.write(
        new_notebook(cells=[new_code_cell("run.panel()", outputs=[shown])]), tmp_path / "n.ipynb"
    )
    requests = []
    page.on("request", lambda request: requests.append(request.url))

    page.goto(notebook_page(tmp_path / "n.ipynb", tmp_path / "n.html", title="n").as_uri())

    plot = page.frame_locator("iframe").get_by_label("Where was the cluster's memory?")
    expect(plot).to_be_visible()
    assert len(requests) == 1
