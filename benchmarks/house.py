"""Sizes of the code by package: ``python benchmarks/house.py [REV] [--against REV]``.

Without a revision of git, the files of the working tree. Code lines are lines without blank lines,
comments and docstrings. A constant is a name of a module that is assigned a number, or arithmetic
of numbers and names. Sections are headings of numpydoc in the docstrings of functions and classes.
"""

import argparse
import ast
import io
import re
import subprocess
import tarfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Folders that are measured; those below benchkit/ are listed each.
FOLDERS = ("benchkit", "tests", "benchmarks", "validation", "workloads")
SECTIONS = re.compile(r"^ *(Parameters|Returns|Yields|Raises|Attributes|Notes)\n *-{3,}$", re.M)
COLUMNS = ("modules", "lines", "code", "functions", "sections", "constants")
NUMBER = (ast.BinOp, ast.Constant, ast.Load, ast.Name, ast.UnaryOp, ast.operator, ast.unaryop)
BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def sources(revision: str | None) -> Iterator[tuple[str, str]]:
    """Yield path and text of the Python files of a revision, or of the working tree."""
    if revision is None:
        listed = subprocess.check_output(["git", "ls-files", "-z", *FOLDERS], cwd=ROOT, text=True)
        for name in listed.split("\0"):
            if name.endswith(".py") and (ROOT / name).exists():
                yield name, (ROOT / name).read_text("utf-8")
        return
    packed = subprocess.check_output(["git", "archive", revision], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            measured = member.name.endswith(".py") and member.name.startswith(FOLDERS)
            if measured and (file := archive.extractfile(member)):
                yield member.name, file.read().decode()


def is_constant(statement: ast.stmt) -> bool:
    """Return whether a statement of a module assigns a number to a name."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    parts = list(ast.walk(statement.value))
    values = [part.value for part in parts if isinstance(part, ast.Constant)]
    numbers = bool(values) and all(type(value) in (int, float) for value in values)
    return numbers and all(isinstance(part, NUMBER) for part in parts)


def counts(text: str) -> Counter[str]:
    """Return the sizes of one file."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    found: Counter[str] = Counter(modules=1, lines=text.count("\n"))
    found["constants"] = sum(map(is_constant, tree.body))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in BLANK and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in nodes:
        if isinstance(node, (*DEFINED, ast.Module)) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
            found["sections"] += bool(SECTIONS.search(ast.get_docstring(node) or ""))
        if isinstance(node, DEFINED):
            found["functions"] += 1
            found["tests"] += node.name.startswith("test_")
            found["workloads"] += any("workload" in _called(d) for d in node.decorator_list)
    found["code"] = len(lines)
    return found


def _called(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def sizes(revision: str | None) -> dict[str, Counter[str]]:
    """Return the sizes of each package of benchkit/ and of each other folder."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path, text in sources(revision):
        folder, *middle = path.split("/")[:-1]
        measured = counts(text)
        if folder == "benchkit":
            found[f"benchkit/{middle[0] if middle else '*.py'}"] += measured
        found[folder] += measured
    return found


def cells(measured: Counter[str]) -> list[str]:
    """Return the columns of one row as text."""
    per_1000 = 1000 * measured["constants"] / measured["code"] if measured["code"] else 0.0
    return [*(str(measured[column]) for column in COLUMNS), f"{per_1000:.1f}"]


def table(tables: list[dict[str, Counter[str]]]) -> str:
    """Return one row a package, with the sizes of each revision side by side."""
    names = sorted({name for found in tables for name in found}, key=lambda n: (n in FOLDERS, n))
    rows = [["", *COLUMNS, "per 1000 code"]]
    for name in names:
        columns = zip(*(cells(found[name]) for found in tables), strict=True)
        rows.append([name, *(" -> ".join(column) for column in columns)])
    totals = {
        "tests": [str(found["tests"]["tests"]) for found in tables],
        "workloads": [str(found["workloads"]["workloads"]) for found in tables],
        "benchmarks": [str(found["benchmarks"]["modules"]) for found in tables],
    }
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
    counted = [f"{name}: {' -> '.join(values)}" for name, values in totals.items()]
    return "\n".join([*lines, "", "functions " + ", ".join(counted[:2]), f"modules {counted[2]}"])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revision", nargs="?", metavar="REV", help="default: the working tree")
    parser.add_argument("--against", metavar="REV", help="an earlier revision: before -> after")
    given = parser.parse_args()
    revisions = [given.revision] if given.against is None else [given.against, given.revision]
    print(table([sizes(revision) for revision in revisions]))


if __name__ == "__main__":
    main()
