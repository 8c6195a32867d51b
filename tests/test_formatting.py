import io

from benchkit.formatting import Table


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
    assert "<td style='text-align:left'>a|&lt;b&gt;</td>" in table.to_html()
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(table)
    assert "a|<b>" in console.export_text()
