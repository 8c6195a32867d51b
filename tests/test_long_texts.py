"""No text keeps a command busy: patterns and readers of texts have a limit of CPU time."""

import gc
import json
import re
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.regex_attacks import CHARACTERS, UsedPattern, attacks, used_patterns

import benchkit
from benchkit import formatting
from benchkit.errors import BenchkitError
from benchkit.experiment.run.stopping import parse_budget
from benchkit.measure.errors import InvalidSelectionError
from benchkit.measure.expression import matcher
from benchkit.measure.secrets.redaction import redact, redact_text
from benchkit.measure.workloads import Workload
from benchkit.show.plots.thread_activity import format_event
from benchkit.store.filters import (
    Selection,
    matching,
    parse_moment,
    parse_selection,
    workload_matcher,
)
from benchkit.store.interchange.results import import_results
from benchkit.table import Table, columns_of_numbers
from benchkit.text import (
    chat_text,
    cut_markdown,
    github_text,
    html_text,
    markdown_block,
    markdown_code,
    markdown_text,
)

#: A linear pattern needs some ms for a text of this size, a quadratic one a second or more.
SIZE, MAX_CPU_S = 30_000, 0.15
PACKAGE = Path(benchkit.__file__).parent

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="needs a timer of CPU time (not on Windows)"
)


class TooSlowError(BaseException):
    """Ends a call that exceeds its CPU time; no handler of `Exception` catches it."""


@contextmanager
def cpu_limit(what, seconds=MAX_CPU_S):
    """Fail the test if the block needs more CPU time; ends also a match of a pattern."""

    def stop(*_):
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    gc.disable()  # a collection takes as long as other tests have left objects behind
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except TooSlowError:
        pytest.fail(f"{what}: more than {seconds} s of CPU")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.enable()
        signal.signal(signal.SIGVTALRM, before)


def shown(text):
    return f"{text[:60]!r}...{text[-10:]!r}"


def long_texts():
    """Return texts that repeat each kind of character, alone and after beginnings of values."""
    units = [
        "12.1 s in tasks of download ",
        "a=1,",
        "://",
        "a.b[",
        "\\'",
        "a@b:",
        "<a>",
        "-a",
        "not ",
    ]
    for unit in [*CHARACTERS, *units]:
        body = unit * (SIZE // 3 // len(unit))
        for start in ("", "12.1 s ", "1", "https://a:", "[", "token="):
            yield f"{start}{body}\x00"


MAX_SECRETS_CPU_S = 0.75
TEXTS = list(long_texts())


@pytest.fixture(scope="module")
def found():
    """Return the patterns of the package, and the places of those that cannot be seen."""
    return used_patterns(PACKAGE)


def test_used_patterns_sees_every_pattern_of_the_package(found):
    used, unseen = found

    assert not unseen, "write these with module-level names, so that this test can run them"
    assert len(used) > 80


@pytest.mark.parametrize(
    "pattern",
    [r"( ?(%|[a-z]+|\d+))*x", r"\d*\.?\d+x", r"<[^>]*>", r"\s*\{.*\w.*\}\s*", r"(a|b|ab)*c"],
)
def test_attacks_find_patterns_that_backtrack(pattern):
    used = UsedPattern("here", re.compile(pattern), is_search=True)

    def attack():
        for text in attacks(used.pattern, SIZE):
            with cpu_limit(pattern):
                used.run(text)

    with pytest.raises(pytest.fail.Exception, match="more than"):
        attack()


@pytest.mark.slow
@pytest.mark.parametrize("are_secrets", [False, True], ids=["others", "secrets"])
def test_patterns_need_linear_time(found, are_secrets):
    # Forms of secrets end after some thousand characters: linear, but with a large factor.
    seconds = MAX_SECRETS_CPU_S if are_secrets else MAX_CPU_S
    for used in found[0]:
        if used.place.startswith("benchkit.measure.secrets.") != are_secrets:
            continue
        for text in attacks(used.pattern, SIZE):
            what = f"{used.place}: {used.pattern.pattern!r} on {shown(text)}"
            with cpu_limit(what, seconds):
                used.run(text)


def test_scripts_of_pages_have_only_patterns_that_are_tested_here():
    literal = re.compile(
        r"(?:(?:split|match|matchAll|replace|replaceAll|search)\(|RegExp\()\s*/([^/\n]+)/"
    )
    scripts = {path.name: path.read_text("utf-8") for path in PACKAGE.rglob("*.js")}
    found = {pattern for text in scripts.values() for pattern in literal.findall(text)}

    assert found == {r"\s+"}  # a run of spaces: linear
    assert not [name for name, text in scripts.items() if "RegExp" in text or ".test(" in text]


def readers(tmp_path):
    """Return functions that read a text of a user, a file, or a run."""

    class Variant:
        def __init__(self, name):
            self.name, self.tags, self.workload = name, (name,), Workload

    def table(text):
        for rows in (Table([{"a": text}, {"a": "1 s"}]), Table([{text: 1}])):
            rows.to_text(width=80)
            rows.to_markdown()
            rows.to_html()

    def rows(text):
        column = pa.table({"workload": [text, "a"], "tags": ["{}", "{}"], "params": ["{}", "{}"]})
        matching(column, Selection(workload=f"*{text[:200]}*b"))
        matching(column, Selection(workload=text))

    def pytest_benchmark(text):
        path = tmp_path / "pytest.json"
        stats = {"data": [1.0], "mean": 1.0}
        entry = {"name": text, "fullname": text, "params": {"p": text}, "stats": stats}
        content = {"benchmarks": [entry], "machine_info": {}, "datetime": "2026-01-01T00:00:00"}
        path.write_text(json.dumps(content))
        import_results(benchkit.Store(tmp_path / "store"), path)

    return {
        "table": table,
        "matching": rows,
        "import_results": pytest_benchmark,
        "matcher": lambda text: matcher(text)(Variant("array.basic_sum[shape=thin]")),
        "matcher of names": lambda text: matcher("*a*b*c*d*e*f")(Variant(text)),
        "workload_matcher": lambda text: workload_matcher("*a*b*c*d*e*f")(text),
        "parse_selection": parse_selection,
        "parse_moment": parse_moment,
        "parse_budget": parse_budget,
        "format_event": format_event,
        "format_event of JSON": lambda text: format_event(json.dumps({"key": text})),
        "html_text": html_text,
        "package_path": formatting.package_path,
        "short_group": formatting.short_group,
        "short_names": lambda text: formatting.short_names([text, text + "a"]),
        "chat_text": chat_text,
        "github_text": github_text,
        "markdown_text": markdown_text,
        "markdown_code": markdown_code,
        "markdown_block": markdown_block,
        "cut_markdown": lambda text: cut_markdown(text, 2000),
    }


@pytest.mark.parametrize("name", readers(Path()))
def test_reader_of_long_text_ends(tmp_path, name):
    read = readers(tmp_path)[name]
    texts = TEXTS[:: 8 if name == "import_results" else 1]

    for text in texts:
        with cpu_limit(f"{name} of {shown(text)}", 2 * MAX_CPU_S):
            with suppress(BenchkitError):
                read(text)


def test_redaction_of_long_text_ends():
    for text in TEXTS:
        with cpu_limit(f"redaction of {shown(text)}", MAX_SECRETS_CPU_S):
            redact_text(text)
            redact({"key": text, "argv": ["--name", text]})


@pytest.mark.parametrize("text", ["(" * 5000, "not " * 5000 + "a", "a and (" * 5000])
def test_matcher_of_deep_expression_names_the_limit(text):
    with pytest.raises(InvalidSelectionError, match="more than 50 levels") as raised:
        matcher(text)

    assert len(str(raised.value)) < 400


def test_matcher_accepts_long_flat_expression():
    n_words = 3 * sys.getrecursionlimit()
    chosen = matcher(" or ".join(f"array.{n}" for n in range(n_words)))

    assert chosen(type("Variant", (), {"name": f"array.{n_words - 1}"}))


@pytest.mark.parametrize(
    ("cell", "is_number"),
    [
        ("12.1 s", True),
        ("−3 %", True),
        ("± 1.5", True),
        ("1 h 30 min", True),
        ("1h30m", True),
        ("3 of 40 runs", True),
        ("1 048 576", True),
        ("1,048,576", True),
        ("12,500.5 MiB", True),
        ("0.31*", True),
        ("1.2 GiB (5)", True),
        ("–", True),
        ("12.1 s in tasks of nap without using a processor: storage", False),
        ("2 workers, 4 threads", False),
        ("1.0 to 1.2", False),
        ("main", False),
    ],
)
def test_columns_of_numbers_tells_numbers_from_sentences(cell, is_number):
    assert columns_of_numbers([[cell]]) == [is_number]


def test_cut_keeps_code_blocks_whole():
    block = "````text\nline\n```\nmore\n````"
    text = f"a\n{block}\nb\n```\nopen"

    assert cut_markdown(text, 10_000) == f"{text}\n"
    assert cut_markdown(f"{'x' * 60}\n{block}\n" + "y\n" * 100, 180).splitlines() == [
        "x" * 60,
        "",
        "and 101 more lines",
    ]
