"""`docs/llms.txt`, the overview for language models: short, its links and commands exist."""

import re
from pathlib import Path

from benchkit.cli.main import benchkit

PATH = Path(__file__).parents[1] / "docs" / "llms.txt"


def test_llms_txt_is_short_and_begins_with_title_and_summary():
    text = PATH.read_text()

    assert len(text) < 4000
    assert re.match(r"# benchkit\n\n> benchkit measures", text)


def test_llms_txt_links_exist():
    links = re.findall(r"\]\(([^)]+)\)", PATH.read_text())

    assert len(links) >= 5
    assert [link for link in links if not (PATH.parent / link).is_file()] == []


def test_llms_txt_names_commands_that_exist():
    named = set(re.findall(r"`benchkit (\w+)", PATH.read_text()))

    assert named == {"mcp"}
    assert named <= set(benchkit.commands)
