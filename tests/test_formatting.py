import io

import pandas as pd

from benchkit.table import Table, columns_of_numbers


def test_table_text_aligns_numbers_and_omits_empty_columns():
    rows = [
        {"name": "a", "time": "1.50 s", "error": "", "change": "+1.5 % (2)"},
        {"name": "longer", "time": "12 min 3 s", "error": None, "change": ""},
    ]

    assert Table(rows).to_text().splitlines() == [
        "name          time      change",
        "a           1.50 s  +1.5 % (2)",
        "longer  12 min 3 s",
    ]


def test_table_text_replaces_control_codes():
    assert Table([{"error": "a\nb\x1b[31mc"}]).to_text().splitlines()[1] == "a b [31mc"


def test_table_text_is_cut_to_width():
    assert Table([{"a": "x" * 50}]).to_text(width=10).splitlines()[1] == "x" * 9 + "…"


def test_table_renders_markdown_html_and_rich():
    from rich.console import Console

    table = Table([{"name": "a|<b>", "time": "1 s"}])

    assert table.to_markdown().splitlines()[-1] == r"| a\|&lt;b> | 1 s |"
    assert ">a|&lt;b&gt;</td>" in table.to_html()
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(table)
    assert "a|<b>" in console.export_text()


def test_table_html_aligns_numbers_with_their_titles():
    markup = Table([{"name": "a", "change": "+1.5 %"}]).to_html()

    assert markup.count("text-align:right") == 2  # the title and the cell
    assert "<th style='text-align:right;white-space:nowrap'>change</th>" in markup


def test_table_html_breaks_long_cells_only():
    markup = Table([{"name": "x" * 25, "other": "y" * 24}]).to_html()

    assert f"<td data-label='name' style='text-align:left'>{'x' * 25}</td>" in markup
    one_line = "text-align:left;white-space:nowrap"
    assert f"<td data-label='other' style='{one_line}'>{'y' * 24}</td>" in markup


def test_table_from_frame_omits_numbers_of_rows():
    frame = pd.DataFrame({"runs": [3, None], "arm": ["A", "B"]})

    assert Table.from_frame(frame).names == ["runs", "arm"]
    assert Table.from_frame(frame).cells == [["3.0", "A"], ["", "B"]]
    assert Table.from_frame(frame.set_index("arm")).names == ["arm", "runs"]
    assert Table.from_frame(pd.Series({"host": "a"}, name="value"), "what").cells == [["host", "a"]]


def test_columns_of_numbers_include_noise_with_a_space_after_the_sign():
    rows = [["a", "± 1.3 %", "±0 %", "+1 h"], ["b", "–", "−2.5 %", ""]]

    assert columns_of_numbers(rows) == [False, True, True, True]


def test_table_html_labels_cells_for_narrow_screens():
    markup = Table([{"name": "a", "95% <b>": "+1 %"}]).to_html()

    assert "<td data-label='name' " in markup
    assert "<td data-label='95% &lt;b&gt;' " in markup
    assert markup.count("data-label") == 2  # not the titles
