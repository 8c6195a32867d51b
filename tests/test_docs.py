"""The pages of docs/: their commands and code work, and the site is built without a warning."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from helpers.commands import run_forked

from benchkit.cli.main import benchkit as main
from benchkit.errors import BenchkitError
from benchkit.experiment.environment.lookup import find_environment
from validation.docs_tables import docs_tables, show_table

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
#: First line of a block that is a file, and not run by itself.
FILE = re.compile(r"# ([\w/-]+\.(?:py|yaml))\n")
#: A cell of a table of measurements.
FIGURE = re.compile(r"[+-]?[.\d][\d.,]* ?(?:%|s|ms|µs|kB|MB|MiB)?(?:$|[ ,/])")
#: Header of a table of figures that no script writes -> its page.
WITHOUT_SCRIPT = {
    # Scores of several runs of a detector whose limit was then changed.
    "| groups are | shares | shares and bytes | shares and seconds | shares, limit 3 % |":
        "docs/explanation/nights.md",
    # Before and after a change of the capture: what was before cannot be measured again.
    "| workload | mean before | mean now | peak before | peak now |": "docs/measurement.md",
    "| workload | duration | mean before | mean now | MB before | MB now |": "docs/measurement.md",
}  # fmt: skip
#: Pages whose length is that of a list.
LISTS = {
    *("docs/architecture.md", "docs/dask-history.md", "docs/reference/api.md"),
    "docs/virtual-cluster.md",
}


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def shown_commands():
    for page in (*PAGES, "README.md", "CONTRIBUTING.md"):
        for language, body in blocks(page):
            for line in body.splitlines() if language == "console" else ():
                words = line.strip().removeprefix("$ ")
                if words.startswith("benchkit "):
                    yield pytest.param(words, id=f"{Path(page).stem}: {words[9:50]}")


@pytest.mark.parametrize("line", list(shown_commands()))
def test_shown_command_is_valid(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[1:]
    for word in words:  # files that a user would have
        if re.fullmatch(r"[\w/-]+\.db", word):
            Path(word).touch()
        if (word.endswith("/") and "://" not in word) or word.startswith("tests/"):
            Path(word).mkdir(parents=True)
    command, context = main, click.Context(main, **main.context_settings)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
        assert command is not None, line
    # Parse the options and run nothing; closing restores the variables that options set.
    command.make_context(command.name, words, parent=context).close()


def environments():
    for page in PAGES:
        for language, body in blocks(page):
            if language == "yaml" and FILE.match(body):
                yield pytest.param(body, id=FILE.match(body)[1])


@pytest.mark.parametrize("body", list(environments()))
def test_shown_environment_is_valid(body, tmp_path):
    path = tmp_path / Path(FILE.match(body)[1]).name
    path.write_text(body)
    try:
        name = find_environment(path.stem, [tmp_path, ROOT / "environments"]).name
    except BenchkitError as error:
        if not any(text in str(error) for text in ("cannot be imported", "not installed")):
            raise
        name = path.stem  # a class of clusters or an engine that is not installed here

    assert name == path.stem


@pytest.mark.parametrize("page", sorted(set(PAGES) - LISTS))
def test_page_has_at_most_two_screens(page):
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()

    assert sum(not line.startswith("<!--") for line in lines) <= 100


def written_tables(script):
    """Return the columns of the tables that a benchmark writes, by name."""
    for node in ast.parse((ROOT / script).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TABLES":
            return ast.literal_eval(node.value)
    return {}


@pytest.mark.parametrize(
    "table", list(docs_tables()), ids=lambda table: f"{table.script} {table.name}"
)
def test_table_of_measurements_has_the_columns_that_its_script_writes(table):
    header, _, *rows = (line[2:-2].split(" | ") for line in table.text.splitlines()
                        if line.startswith("| ") or line.startswith("|-"))  # fmt: skip

    assert tuple(header) == written_tables(table.script)[table.name]
    assert {len(row) for row in rows} == {len(header)}
    assert '"--write-docs"' in (ROOT / table.script).read_text(encoding="utf-8")


def test_each_table_of_a_script_is_on_one_page():
    scripts = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("benchmarks/*.py"))
    written = sorted((script, name) for script in scripts for name in written_tables(script))

    assert written
    assert sorted((table.script, table.name) for table in docs_tables()) == written


def test_table_of_figures_names_its_script():
    found = {}
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for table in docs_tables():
            if table.page == ROOT / page:
                text = text.replace(table.text, "")
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            head, _, *rows = table.splitlines()
            cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")[1:]]
            if sum(bool(FIGURE.match(cell)) for cell in cells) >= len(cells) / 2:
                found[head] = page

    assert found == WITHOUT_SCRIPT


def test_table_of_measurements_is_replaced(tmp_path, capsys):
    page = tmp_path / "guides" / "page.md"
    page.parent.mkdir()
    mark = "<!-- table: benchmarks/x.py {} -->\n{}\n<!-- end of table -->\n"
    page.write_text("# Page\n" + mark.format("a", "old") + "\n" + mark.format("b", "kept"))
    rows = [("1", "2 s"), ("3", "")]

    show_table("/r/benchmarks/x.py", "a", ("n", "time"), rows, write=False, docs=tmp_path)
    assert "old" in page.read_text()
    show_table("/r/benchmarks/x.py", "a", ("n", "time"), rows, write=True, below="Two.",
               docs=tmp_path)  # fmt: skip

    new = "| n | time |\n| --- | --- |\n| 1 | 2 s |\n| 3 |  |\n\nTwo."
    expected = "# Page\n" + mark.format("a", new) + "\n" + mark.format("b", "kept")
    assert page.read_text() == expected
    assert capsys.readouterr().out == new.removesuffix("\n\nTwo.") + f"\n{new}\n"
    with pytest.raises(ValueError, match="not enough values"):
        show_table("/r/benchmarks/x.py", "c", ("n",), rows, write=True, docs=tmp_path)


def steps(page):
    """Return the blocks of a page that are files or are run."""
    return [
        (language, body) for language, body in blocks(page)
        if language == "python" or (language == "console" and re.search(r"^\$ ", body, re.M))
    ]  # fmt: skip


#: Pages that the test of the README runs.
RUN_ELSEWHERE = (
    "docs/guides/measure.md",
    "docs/guides/environments.md",
    "docs/reference/settings.md",
)
RUN = [
    page for page in PAGES
    if page not in RUN_ELSEWHERE and any(not FILE.match(body) for _, body in steps(page))
]  # fmt: skip


#: No page: reports are tested elsewhere.
SHORTER = {"ab": ("--no-report",), "nightly": ("--no-report",)}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", RUN)
def test_code_of_page_runs(page, tmp_path):
    folder = tmp_path

    def run(*words):
        if "-n" in words:  # two runs of each show what four do
            number = words.index("-n") + 1
            words = (*words[:number], "2", *words[number + 1 :])
        done = run_forked(words, folder)
        # 1: one variant is slower than the other; 4: too few runs on a busy machine.
        allowed = (0, 1, 4) if "ab" in words else (0,)
        assert done.returncode in allowed, f"{words}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
        for path in folder.glob("*/environments/*.yaml"):  # `init` was run: a cluster starts sooner
            cluster = "cluster:\n  processes: false\n"
            path.write_text(path.read_text().replace("cluster:\n", cluster))

    for language, body in steps(page):
        if file := FILE.match(body):
            (folder / file[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / file[1]).write_text(body)
        elif language == "python":
            (folder / "script.py").write_text(body)
            run("script.py")
        else:
            for line in body.splitlines():
                command, *words = shlex.split(line.removeprefix("$ "))
                if command == "cd":
                    folder = folder / words[0]
                else:
                    assert command in ("benchkit", "pytest")
                    run(command, *words, *SHORTER.get(words[0], ()))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_site_is_built_without_warnings_and_with_its_pictures(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", tmp_path / "doctrees",
         ROOT / "docs", tmp_path / "site"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    pages = {path.relative_to(tmp_path / "site").as_posix() for path in tmp_path.rglob("*.html")}
    assert {page.removeprefix("docs/").replace(".md", ".html") for page in PAGES} <= pages
    for page in (tmp_path / "site").rglob("*.html"):
        for source in re.findall(r'<iframe[^>]* src="([^"]+)"', page.read_text(encoding="utf-8")):
            assert (page.parent / source).exists(), f"{page.name}: {source}"
