"""Import results of public repositories: ``python benchmarks/imports.py NAME=PATH ...``.

PATH is what `benchkit store import` reads, NAME the repository that it is from. Each is imported
into a new store, imported again, judged (`benchkit nightly --no-measure`), and exported; the export
is read by the tool that wrote the results and compared with them. Flushes are calls of ``fsync``
and ``sync``. Needs the packages asv and pytest-benchmark. Prints, and asserts nothing;
``--write-docs`` writes the table into docs/guides/moving-in.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from asv.results import iter_results  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402

from benchkit.cli.main import benchkit as main_command  # noqa: E402
from benchkit.formatting import counted, format_seconds  # noqa: E402
from benchkit.store.interchange.export import export_runs  # noqa: E402
from benchkit.store.interchange.results import import_results  # noqa: E402
from benchkit.store.store import Store  # noqa: E402

TABLES = {
    "repositories": (
        "repository", "tool", "runs", "left out", "CPU of a run", "flushes", "CPU to judge",
        "found", "read back by the tool",
    ),
}  # fmt: skip


class Flushes:
    """Counts the calls that wait for the disk while it is entered."""

    def __init__(self) -> None:
        self.n_calls = 0
        self.kept = {name: getattr(os, name) for name in ("fsync", "sync")}

    def __enter__(self) -> "Flushes":
        for name, call in self.kept.items():
            setattr(os, name, lambda *args, call=call: self.count(call, *args))
        return self

    def count(self, call: Any, *args: Any) -> None:
        """Call a function of `os`, and count it."""
        self.n_calls += 1
        call(*args)

    def __exit__(self, *error: object) -> None:
        for name, call in self.kept.items():
            setattr(os, name, call)


def judged(store: Store, folder: Path) -> str:
    """Return what `nightly --no-measure` finds in a history."""
    words = ["nightly", "--no-measure", "--no-report", "--json", "--quiet", "--output", str(folder)]
    done = CliRunner().invoke(main_command, [*words, "--store", str(store.path)])
    if done.exit_code not in (0, 1):
        return f"exit code {done.exit_code}"
    kinds = Counter(event["kind"] for event in json.loads(done.stdout))
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "nothing"


# -- read by the tool that wrote them -------------------------------------------------------------


def asv_values(folder: Path) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the results in a folder as asv reads them: what each belongs to, and its value."""
    for result in iter_results(str(folder)):
        where = (result.params["machine"], result.commit_hash, result.env_name, result.date)
        for name in result.get_all_result_keys():
            params = result.get_result_params(name)
            values = result.get_result_value(name, params)
            cases = [()]
            for axis in params:
                cases = [(*case, each) for case in cases for each in axis]
            for case, value in zip(cases, values, strict=False):
                version = result.benchmark_version.get(name)
                yield (*where, name, version, case), None if value is None else repr(value)


def asv_read_back(store: Store, path: Path, folder: Path) -> str:
    export_runs(store, folder / "asv", form="asv")
    before, after = dict(asv_values(path)), dict(asv_values(folder / "asv"))
    n_equal = sum(key in after and after[key] == value for key, value in before.items())
    for key in [key for key in before if after.get(key, ...) != before[key]][:5]:
        print("differs:", key, before[key], after.get(key, "missing"))
    return f"{n_equal} of {len(before)} equal"


def pytest_read_back(store: Store, path: Path, folder: Path) -> str:
    file = folder / "results.json"
    export_runs(store, file, form="pytest-benchmark")
    reader = [sys.executable, "-m", "pytest_benchmark", "compare", str(file), "--csv", folder / "c"]
    subprocess.run(reader, check=True, capture_output=True, cwd=folder)
    names = (folder / "c.csv").read_text().splitlines()[1:]
    before = []
    for each in path.rglob("*.json"):
        for entry in json.loads(each.read_text())["benchmarks"]:
            entry["stats"].pop("data", None)
            before.append(entry)
    after = json.loads(file.read_text())["benchmarks"]
    n_equal = sum(entry in before for entry in after)
    return f"{n_equal} of {len(names)} equal"


READERS = {"asv": asv_read_back, "pytest-benchmark": pytest_read_back}


def row(name: str, path: Path, folder: Path) -> list[str]:
    """Import, judge and export the results of one repository."""
    store = Store(folder / "store")
    start = time.process_time()
    with Flushes() as flushes:
        report = import_results(store, path)
    cpu_s = time.process_time() - start
    for line in report.odd:
        print("left out:", line)
    again = import_results(store, path)
    if again.added:
        raise SystemExit(f"{name}: the second import added {counted(again.added, 'run')}")
    tool = json.loads(store.runs(columns=["tags"])["tags"].iloc[0])["imported"]
    start = time.process_time()
    found = judged(store, folder / "night")
    judge_s = time.process_time() - start
    read_back = READERS[tool](store, path, folder) if tool in READERS else "no export"
    n_left_out = sum(int(line.partition(" ")[0]) for line in report.odd)
    return [
        name, tool, str(report.added), str(n_left_out), format_seconds(cpu_s / report.added),
        str(flushes.n_calls), format_seconds(judge_s), found, read_back,
    ]  # fmt: skip


def warm_up(folder: Path) -> None:
    """Import one result, so that modules are loaded before a clock is on."""
    content = {
        "version": "5.1.0", "datetime": "2026-11-20T02:00:00", "machine_info": {},
        "benchmarks": [{"name": "a", "fullname": "a.py::a", "stats": {"median": 1.0}}],
    }  # fmt: skip
    (folder / "one.json").write_text(json.dumps(content))
    store = Store(folder / "warm")
    import_results(store, folder / "one.json")
    judged(store, folder / "warm-night")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", nargs="+", metavar="NAME=PATH")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--write-docs", action="store_true", help="write the table into the page")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        warm_up(Path(folder))
        for number, each in enumerate(given.repositories):
            name, _, path = each.partition("=")
            below = Path(folder) / str(number)
            below.mkdir()
            rows.append(row(name, Path(path), below))
            print(" | ".join(rows[-1]), flush=True)
    show_table(__file__, "repositories", TABLES["repositories"], rows, write=given.write_docs)


if __name__ == "__main__":
    main()
