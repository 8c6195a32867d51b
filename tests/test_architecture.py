"""The code follows docs/architecture.md: imports run downward, folders stay small."""

import ast
import importlib.util
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("measure", "simulation", "store", "predict", "analysis", "experiment", "show", "cli")


@pytest.fixture(scope="module")
def drawing():
    path = ROOT / "docs" / "draw_architecture.py"
    spec = importlib.util.spec_from_file_location("draw_architecture", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_architecture_picture_matches_code(drawing):
    text = drawing.PAGE.read_text(encoding="utf-8")

    assert drawing.page_with_table(text) == text, "run `python docs/draw_architecture.py`"


def test_folder_without_python_files_is_not_drawn(drawing, tmp_path, monkeypatch):
    for name in ("measure/capture/__init__.py", "measure/old/__pycache__/left.pyc", "measure/a.py"):
        (tmp_path / "benchkit" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "benchkit" / name).touch()
    monkeypatch.setattr(drawing, "ROOT", tmp_path)

    assert drawing.package_of("benchkit.measure.capture.plugin") == "measure/capture"
    assert drawing.package_of("benchkit.measure.old") == "measure"
    assert drawing.package_of("benchkit.measure.a") == "measure"


def test_architecture_page_names_existing_files(drawing):
    text = drawing.PAGE.read_text(encoding="utf-8")
    named = set(
        re.findall(r"`((?:benchkit/|notebooks/|docs/|tests/|[a-z_]+/)[\w/]+\.(?:py|ipynb))`", text)
    )

    missing = [
        name for name in named if not any((ROOT / top / name).exists() for top in ("", "benchkit"))
    ]

    assert len(named) > 20
    assert missing == []


@pytest.fixture(scope="module")
def imports(drawing):
    modules = drawing.modules()
    return {module: set(drawing.imported(path, modules)) for module, path in modules.items()}


def reachable(modules, imports):
    found, open_ = set(modules), list(modules)
    while open_:
        new = imports[open_.pop()] - found
        found |= new
        open_ += new
    return found


def journeys(text):
    """Return the name of each journey and its files, each with its number of stays."""
    section = text.partition("\n## Journeys\n")[2].partition("\n## ")[0]
    paragraphs = [part for part in section.split("\n\n") if part.startswith("**")]
    return {
        paragraph.split("**")[1]: [
            (f"benchkit.{name.replace('/', '.')}", int(stays or 1))
            for name, stays in re.findall(r"`([a-z_/]+)\.py`(?:\s\((\d+))?", paragraph)
        ]
        for paragraph in paragraphs
    }


def test_journeys_stay_at_most_twice_in_each_file(drawing):
    found = journeys(drawing.PAGE.read_text(encoding="utf-8"))

    assert list(found) == ["A run", "An A/B", "A simulation", "A night", "A click"]
    for files in found.values():
        modules = [module for module, _ in files]
        assert len(modules) == len(set(modules)) >= 4
        assert max(stays for _, stays in files) <= 2


def test_journeys_follow_imports(drawing, imports):
    found = journeys(drawing.PAGE.read_text(encoding="utf-8"))

    outside = [
        (name, module)
        for name, files in found.items()
        for place, (module, _) in enumerate(files)
        if place and module not in reachable([before for before, _ in files[:place]], imports)
    ]

    # These two begin in a new process.
    assert outside == [
        ("A run", "benchkit.measure.entrypoint"),
        ("A simulation", "benchkit.simulation.entrypoint"),
    ]


def test_imports_form_no_cycle(imports):
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_strings_name_no_module_of_higher_layer():
    upward = []
    for path in sorted((ROOT / "benchkit").rglob("*.py")):
        layer = path.relative_to(ROOT / "benchkit").parts[0]
        if layer not in LAYERS:
            continue
        higher = "|".join(LAYERS[LAYERS.index(layer) + 1 :]) or "-"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        upward += [
            f"{path.relative_to(ROOT)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(rf"benchkit\.({higher})(\.\w+)*", node.value)
        ]

    assert upward == []


def test_folders_have_at_most_20_files():
    files = [path for path in (ROOT / "benchkit").rglob("*.py") if "__pycache__" not in path.parts]
    sizes = Counter(str(path.parent.relative_to(ROOT)) for path in files)

    assert {folder: size for folder, size in sizes.items() if size > 20} == {}
