"""Every name that a shipped notebook imports from benchkit exists."""

import ast
import importlib
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_imports_exist(path):
    cells = nbformat.read(path, as_version=4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    code = ["\n".join(line for line in text.split("\n") if line[:1] not in "%!") for text in code]
    imports = [
        (node.module, alias.name)
        for text in code
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("benchkit")
        for alias in node.names
    ]

    missing = []
    for module, name in imports:
        try:
            getattr(importlib.import_module(module), name)
        except AttributeError:
            try:
                importlib.import_module(f"{module}.{name}")
            except ImportError:
                missing.append(f"{module}.{name}")

    assert missing == []
