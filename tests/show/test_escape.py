"""Text from runs is displayed and never executed, also if a sentence has code in it."""

import pytest

from benchkit.formatting import html_text


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("`benchkit run` makes one", "<code>benchkit run</code> makes one"),
        ("`<img src=x>` & 'more'", "<code>&lt;img src=x&gt;</code> &amp; &#x27;more&#x27;"),
        ("a lone ` stays", "a lone ` stays"),
        ("``", "``"),
    ],
)
def test_html_text_marks_backquoted_parts(text, markup):
    assert html_text(text) == markup
