"""Configuration of the documentation: ``sphinx-build -W docs site``."""

import importlib
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

import draw_pictures  # noqa: E402

import benchkit  # noqa: E402

project = "benchkit"
author = copyright = "benchkit developers"
release = version = benchkit.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx_click"]
default_role = "code"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
autodoc_typehints = "none"  # numpydoc sections have them
smartquotes = False  # options begin with two dashes
html_theme = "furo"
html_title = "benchkit"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_extra_path = ["_pictures", "llms.txt"]
html_show_copyright = False
html_copy_source = False


def escape_markup(app, context, lines):
    """Escape the stars and underscores of names and patterns, in place; not those in backticks."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        parts[::2] = [re.sub(r"([*_])", r"\\\1", part) for part in parts[::2]]
        lines[number] = "`".join(parts)


def write_command_pages(folder):
    """Write a page for each command: its help."""
    folder.mkdir(exist_ok=True)
    module = importlib.import_module("benchkit.cli.main")
    names = {id(value): name for name, value in vars(module).items()}
    for name, command in module.benchkit.commands.items():
        lines = [f".. click:: benchkit.cli.main:{names[id(command)]}"]
        lines += [f"   :prog: benchkit {name}", "   :nested: full", ""]
        (folder / f"{name}.rst").write_text("\n".join(lines), encoding="utf-8")


def setup(app):
    """Make pictures and pages before the pages are read; help of commands is text, not markup."""
    app.connect("sphinx-click-process-description", escape_markup)
    draw_pictures.main(DOCS / "_pictures" / "pictures")
    write_command_pages(DOCS / "reference" / "commands")
