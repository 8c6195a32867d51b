"""Text from runs is displayed and never executed, also if a sentence has code in it."""

import pytest

from benchkit.show.escape import escape_with_code


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("`benchkit run` makes one", "<code>benchkit run</code> makes one"),
        ("`<img src=x>` & 'more'", "<code>&lt;img src=x&gt;</code> &amp; &#x27;more&#x27;"),
        ("a lone ` stays", "a lone ` stays"),
        ("``", "``"),
    ],
)
def test_escape_with_code_marks_backquoted_parts(text, markup):
    assert escape_with_code(text) == markup
