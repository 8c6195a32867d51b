"""Texts and code use plain technical English: words of a list occur only as names of the field."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = re.compile(
    r"\b(told|tells|hear[sd]?|whoever|nobody|somebody|lay|hang up|hurry|let go|crowd|last words"
    r"|beside)\b",
    re.IGNORECASE,
)
#: Name of a file -> words that have to stay, with their reason.
PERMITTED = {
    "benchkit/measure/capture/worker_reports.py": {"told"},  # a table of recordings
    "benchkit/measure/source.py": {"told", "nobody"},  # earlier names, for the source hashes
    "benchkit/show/issues/sync.py": {"told"},  # the same marker
    "benchkit/store/build/worker_reports.py": {"told"},  # a table of recordings
    "benchkit/store/interchange/cluster_dump.py": {"told"},  # the same table
    "tests/store/interchange/test_cluster_dump.py": {"told"},
    "tests/measure/test_worker_reports.py": {"told"},
    "tests/store/build/test_worker_reports.py": {"told"},
    "tests/test_language.py": None,
    "benchkit/measure/engines/frisky.py": {"told"},  # a table of recordings
    "workloads/coord.py": {"told"},  # part of the source hash
    "workloads/geo.py": {"nobody"},  # part of the source hash
}
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".html", ".css", ".js", ".ipynb", ".csv", ".txt"}


def tracked_files():
    command = ["git", "ls-files", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [name for name in done.stdout.split("\0") if Path(name).suffix in TEXT]


def test_texts_avoid_metaphors_and_pronouns():
    found = []
    for name in tracked_files():
        permitted = PERMITTED.get(name, set())
        if permitted is None or not (ROOT / name).exists():
            continue
        for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
            words = {word.lower() for word in WORDS.findall(line)} - permitted
            found += [f"{name}:{number}: {word}" for word in sorted(words)]

    assert found == []


def test_permitted_words_occur_in_their_files():
    unused = [
        f"{name}: {word}"
        for name, words in PERMITTED.items()
        for word in words or ()
        if not re.search(rf"\b{word}\b", (ROOT / name).read_text("utf-8"), re.IGNORECASE)
    ]

    assert unused == []


#: Constructions that need a second reading, and what to write instead.
CONSTRUCTIONS = {
    r"from (which|when|where) on\b": "or more; since",
    # In comments, without formulas; a unit such as "B / s" has one letter.
    r"#:? (?!.*p\().*[a-z]{2,} / [a-z]{2,}": "ratio of ... to ...",
    r"\b_?(LEAST|FEWEST)(_[A-Z0-9_]+)?\b": "MIN_",
    r"\b_?MOST(_[A-Z0-9_]+)?\b": "MAX_",
}


def test_texts_avoid_constructions_that_need_a_second_reading():
    found = []
    for name in tracked_files():
        # The sources of workloads are hashed: another text is another workload.
        if name.startswith("workloads/") or name == "tests/test_language.py":
            continue
        if not (ROOT / name).exists():
            continue
        for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
            found += [
                f"{name}:{number}: write {better!r}: {line.strip()}"
                for pattern, better in CONSTRUCTIONS.items()
                if re.search(pattern, line)
            ]

    assert found == []


def assigned_names(tree):
    """Yield the names of variables, arguments and attributes that a module assigns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_variables_are_nouns():
    found = [
        f"{name}: {variable}"
        for name in tracked_files()
        if name.endswith(".py") and not name.startswith("workloads/")
        if (ROOT / name).exists()
        for variable in assigned_names(ast.parse((ROOT / name).read_text("utf-8")))
        if re.fullmatch(r"_?of(_\w+)?", variable)
    ]

    assert found == []
