"""Write runs for other tools, in a format that the suffix of the file or a name selects."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from benchkit.errors import UsageError, did_you_mean
from benchkit.store.interchange.coiled import write_sqlite
from benchkit.store.interchange.junit import write_junit
from benchkit.store.interchange.openmetrics import write_openmetrics
from benchkit.store.interchange.summaries import write_asv, write_pytest_benchmark
from benchkit.store.interchange.trace import write_speedscope, write_trace
from benchkit.store.run import Run
from benchkit.store.store import Store
from benchkit.whole_file import drafted

#: Formats of many runs: name -> suffixes that select it; the first is the usual one.
STORE_FORMATS = {
    "sqlite": (".db", ".sqlite"),
    "parquet": (".parquet",),
    "csv": (".csv",),
    "junit": (".xml",),
    "openmetrics": (".om", ".prom"),
    "pytest-benchmark": (),
    "asv": (),
}
#: Formats of one run: name -> suffixes that select it.
RUN_FORMATS = {"trace": (".json", ".json.gz"), "speedscope": (".speedscope.json",)}
_RUN_WRITERS = {"trace": write_trace, "speedscope": write_speedscope}


def export_runs(
    store: Store, path: str | Path, runs: pd.DataFrame | None = None, *, form: str | None = None
) -> int:
    """Write runs to one file; for asv, to a folder."""
    runs = store.runs() if runs is None else runs
    writers: dict[str, Callable[[pd.DataFrame, Path], None]] = {
        "sqlite": lambda selected, draft: write_sqlite(store, draft, selected),
        "parquet": lambda selected, draft: selected.to_parquet(draft, index=False),
        "csv": lambda selected, draft: selected.to_csv(draft, index=False),
        "junit": write_junit,
        "openmetrics": write_openmetrics,
        "pytest-benchmark": lambda selected, draft: write_pytest_benchmark(store, selected, draft),
        "asv": write_asv,
    }
    write = writers[_format(Path(path), form, STORE_FORMATS)]
    _write_whole(Path(path), lambda draft: write(runs, draft))
    return len(runs)


def export_run(run: Run, path: str | Path, *, form: str | None = None) -> str:
    """Write one run for a viewer of traces or call stacks."""
    form = _format(Path(path), form, RUN_FORMATS)
    write = _RUN_WRITERS[form]
    _write_whole(Path(path), lambda draft: write(run, draft))
    return form


def _format(path: Path, form: str | None, formats: dict[str, tuple[str, ...]]) -> str:
    if path.exists():
        raise UsageError(f"{path}: already exists: name a new file")
    if form is not None:
        if form not in formats:
            hint = did_you_mean(form, formats, f"use {', '.join(formats)}")
            raise UsageError(f"no format {form!r}: {hint}")
        return form
    suffixes = {suffix: name for name, all_of in formats.items() for suffix in all_of}
    for suffix in sorted(suffixes, key=len, reverse=True):
        if path.name.endswith(suffix):
            return suffixes[suffix]
    raise UsageError(
        f"{path}: unknown suffix: use {', '.join(suffixes)}, or --format with {', '.join(formats)}"
    )


def _write_whole(path: Path, write: Callable[[Path], None]) -> None:
    try:
        with drafted(path, suffix="".join(path.suffixes[-2:])) as draft:
            write(draft)
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot be written: {reason}") from error
