"""Write the packages of benchkit and their imports into docs/architecture.md.

    python docs/draw_architecture.py          # write the table
    python docs/draw_architecture.py --check  # exit code 1 if the page is not up to date

An import that follows from others is left out: if A imports B and B imports C, C is not in
the row of A.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- imports: begin -->", "<!-- imports: end -->"
#: Packages in the table, from top to bottom.
LAYERS = ("cli", "show", "experiment", "analysis", "predict", "store", "simulation", "measure")


def modules() -> dict[str, Path]:
    """Return dotted name -> file of every module below benchkit/."""
    files = {path for path in (ROOT / "benchkit").rglob("*.py") if "__pycache__" not in path.parts}
    names = {}
    for path in sorted(files):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imported(path: Path, known: Iterable[str]) -> Iterator[str]:
    """Yield the modules of benchkit that a file imports, at its top or inside functions."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    unused = {  # for annotations only
        part
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for part in node.body
    }
    for node in nodes:
        if node in unused:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else str(node.module)


def package_of(module: str) -> str | None:
    """Return the package of a module: ``show/dashboard``, ``store``; None if it is in no layer."""
    parts = module.split(".")[1:]
    if not parts or parts[0] not in LAYERS:
        return None
    folder = ROOT / "benchkit" / "/".join(parts[:2])
    # a folder that only has __pycache__, left behind by an earlier commit, is no package
    return "/".join(parts[:2]) if len(parts) > 1 and any(folder.glob("*.py")) else parts[0]


def package_imports() -> dict[str, set[str]]:
    """Return package -> packages that it imports."""
    known = modules()
    imports: dict[str, set[str]] = {}
    for module, path in known.items():
        package = package_of(module)
        if package is None:
            continue
        targets = imports.setdefault(package, set())
        targets |= {target for name in imported(path, known) if (target := package_of(name))}
        targets.discard(package)
    return imports


def reduced(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without those that follow from others."""
    reachable: dict[str, set[str]] = {}
    for package in TopologicalSorter(imports).static_order():
        below = imports.get(package, set())
        reachable[package] = below.union(*(reachable[target] for target in below))
    return {
        package: {
            target
            for target in targets
            if not any(target in reachable[other] for other in targets - {target})
        }
        for package, targets in imports.items()
    }


def table() -> str:
    """Return a table of the layers, with the sub-packages inside them and what these import."""
    imports = package_imports()
    layers: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for package, targets in imports.items():
        layer = package.partition("/")[0]
        layers[layer] |= {target.partition("/")[0] for target in targets} - {layer}
    below = reduced(layers)
    lines = ["| layer | imports | packages inside, and what each imports of them |"]
    lines.append("|---|---|---|")
    for layer in LAYERS:
        inside = {name for name in imports if name.startswith(f"{layer}/")}
        arrows = reduced({name: imports[name] & inside for name in inside})
        parts = [
            _name(name) + (f" → {_names(arrows[name])}" if arrows[name] else "")
            for name in sorted(inside)
        ]
        lines.append(f"| **`{layer}`** | {_names(below[layer])} | {'; '.join(parts)} |")
    return "\n".join(lines)


def _name(package: str) -> str:
    return f"`{package.rpartition('/')[2]}`"


def _names(packages: Iterable[str]) -> str:
    return ", ".join(_name(package) for package in sorted(packages))


def page_with_table(text: str) -> str:
    """Return the text of the page with the table between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    """Write or check the page."""
    text = PAGE.read_text(encoding="utf-8")
    drawn = page_with_table(text)
    if "--check" in sys.argv[1:]:
        if drawn != text:
            print(f"{PAGE.name} is not up to date: run `python docs/draw_architecture.py`")
        return int(drawn != text)
    PAGE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
