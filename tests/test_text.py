"""Values of runs are shown literally in each form of text, and have no effect in any."""

import html

import pytest

from benchkit.text import (
    chat_text,
    escape,
    github_text,
    html_text,
    markdown_block,
    markdown_code,
    markdown_text,
)

HOSTILE = "<img src=x onerror='alert(1)'> & \"more\""


def test_escape_leaves_no_character_of_html():
    escaped = escape(HOSTILE)

    assert not set("<>'\"") & set(escaped)
    assert html.unescape(escaped) == HOSTILE
    assert escape(ValueError("<b>")) == "&lt;b&gt;"


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


@pytest.mark.parametrize(
    ("value", "markdown"),
    [
        ("a -> b", "a -> b"),
        ("> quoted", "&gt; quoted"),
        ("<b>x</b>", "&lt;b>x&lt;/b>"),
        ("[x](javascript:1) | @all", "\\[x\\](javascript:1) \\| @\u200ball"),
        ("# head\n\n* item", "\\# head \\* item"),
    ],
)
def test_markdown_text_escapes_what_has_an_effect(value, markdown):
    assert markdown_text(value) == markdown


@pytest.mark.parametrize(
    ("value", "markdown"),
    [("a | b", "`a \\| b`"), ("`a``b", "``` `a``b ```"), ("two\nlines", "`two lines`"), ("", "")],
)
def test_markdown_code_is_not_ended_by_its_value(value, markdown):
    assert markdown_code(value) == markdown


def test_markdown_block_is_not_ended_by_its_value():
    assert markdown_block("a\n```\n# head\n") == "````text\na\n```\n# head\n````"


def test_github_text_starts_no_other_command():
    hostile = "100%\r\n::error file=a,line=1::b"

    assert github_text(hostile) == "100%25%0D%0A::error file=a,line=1::b"
    assert github_text(hostile, is_property=True) == (
        "100%25%0D%0A%3A%3Aerror file=a%2Cline=1%3A%3Ab"
    )


def test_chat_text_calls_nobody_and_is_cut():
    assert chat_text("<!channel>\n& co") == "&lt;!channel&gt; &amp; co"
    assert chat_text("x" * 201) == "x" * 199 + "…"
