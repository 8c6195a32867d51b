"""Tables of measurements in docs/: each stands between comments that name its script."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1] / "docs"
_END = "<!-- end of table -->"
_TABLE = re.compile(
    rf"^<!-- table: (benchmarks/\w+\.py) (\w+) -->\n(.*?)\n{_END}$", re.MULTILINE | re.DOTALL
)


class DocsTable(NamedTuple):
    """A table of a page with the script that writes it, and its name there."""

    page: Path
    script: str
    name: str
    text: str


def docs_tables(docs: Path = DOCS) -> Iterator[DocsTable]:
    """Yield all tables of measurements."""
    for page in sorted(docs.rglob("*.md")):
        for found in _TABLE.finditer(page.read_text(encoding="utf-8")):
            yield DocsTable(page, *found.groups())


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def show_table(
    script: str,
    name: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    write: bool,
    below: str = "",
    docs: Path = DOCS,
) -> None:
    """Print a table and the text below it; with `write`, replace the one in docs/."""
    text = "\n\n".join(filter(None, (markdown(columns, rows), below)))
    print(text, flush=True)
    if not write:
        return
    begin = f"<!-- table: benchmarks/{Path(script).name} {name} -->\n"
    (page,) = {table.page for table in docs_tables(docs) if begin == _begin(table)}
    before, rest = page.read_text(encoding="utf-8").split(begin)
    after = rest.partition(_END)[2]
    page.write_text(f"{before}{begin}{text}\n{_END}{after}", encoding="utf-8")


def _begin(table: DocsTable) -> str:
    return f"<!-- table: {table.script} {table.name} -->\n"
