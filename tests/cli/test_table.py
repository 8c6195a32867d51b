from benchkit.cli.table import as_table


def test_numbers_stand_to_the_right_and_empty_columns_are_left_out():
    rows = [
        {"name": "a", "time": "1.50 s", "error": "", "change": "+1.5 % (2)"},
        {"name": "longer", "time": "12 min 3 s", "error": None, "change": ""},
    ]

    assert as_table(rows).splitlines() == [
        "name          time      change",
        "a           1.50 s  +1.5 % (2)",
        "longer  12 min 3 s",
    ]


def test_a_text_with_control_codes_stays_on_its_line():
    assert as_table([{"error": "a\nb\x1b[31mc"}]).splitlines()[1] == "a b [31mc"


def test_lines_are_cut_to_the_width_that_is_there():
    assert as_table([{"a": "x" * 50}], width=10).splitlines()[1] == "x" * 9 + "…"
