"""Import results: coiled/benchmarks (SQLite), asv and others (JSON), runs (NetCDF).

A result becomes one run with its median. Its samples were taken in one process, so they are no
independent runs; the number of samples is a tag. The same result always gives the same run id, so a
second import adds nothing.

The time of a run from asv is that of its commit: asv measures ranges of commits later and in any
order. When it was measured is a tag.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from functools import lru_cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import xarray as xr

from benchkit.errors import InvalidImportError
from benchkit.measure.errors import error_summary
from benchkit.store.interchange.coiled import ImportReport, import_sqlite, run_tree
from benchkit.store.interchange.github_action import github_action_records
from benchkit.store.interchange.netcdf import import_netcdf
from benchkit.store.interchange.pytest_benchmark import ORIGINAL, pytest_records
from benchkit.store.interchange.result_record import result_record
from benchkit.store.store import Store

#: Prefix of an asv benchmark -> metric; other benchmarks become extra metrics.
_ASV_METRICS = {"time": "duration", "timeraw": "duration", "peakmem": "memory_peak"}
#: Files of asv that hold no results.
_ASV_DESCRIPTIONS = ("benchmarks.json", "machine.json", "asv.conf.json")
#: Unit in asv -> ours; others are kept.
_UNITS = {"seconds": "s", "bytes": "B", "unit": "1"}
#: Endings of files of distributed: performance reports, cluster dumps.
_PAGES, _DUMPS = (".html", ".htm"), (".gz", ".msgpack", ".yaml", ".yml")
#: Problem of a result that would be the same run as one before.
_SECOND = "second result of the same workload, commit, environment, host and time: skipped"
#: Facts about a machine in asv's files -> tag.
_MACHINE = {"cpu": "cpu", "num_cpu": "cores", "ram": "ram", "os": "os", "arch": "arch"}


def import_results(
    store: Store,
    path: str | Path,
    *,
    host: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Add the results of another tool to a store; of JSON files under the name of one host."""
    path = Path(path)
    if path.suffix == ".nc" or (path / "store.json").exists():
        _refuse_host(host, path)
        return import_netcdf(store, path, progress=progress)
    if not path.is_dir() and path.suffix in _PAGES + _DUMPS:
        _refuse_host(host, path)
        return _import_one_run(store, path)
    if not path.is_dir() and path.suffix not in (".json", ".js"):
        _refuse_host(host, path)
        return import_sqlite(store, path, progress=progress)
    paths = [path]
    if path.is_dir():
        paths = sorted(p for p in path.rglob("*.js*") if p.suffix == ".json" or p.name == "data.js")
    problems: Counter[str] = Counter()
    read = lru_cache(maxsize=16)(_read_json)  # descriptions, of which many results have one
    seen: set[str] = set()  # ids of the results

    def runs() -> Iterator[xr.DataTree]:
        for number, file in enumerate(paths):
            for record in _records(file, path.is_dir(), read, host, problems):
                if record["id"] in seen:
                    problems[_SECOND] += 1
                    continue
                seen.add(record["id"])
                if record["id"] not in store:
                    original = record.pop(ORIGINAL, None)
                    yield run_tree(record, **({ORIGINAL: original} if original else {}))
            if progress is not None:
                progress(number + 1, len(paths))

    new = runs()
    first = next(new, None)  # before the store is created
    if not seen:
        reason = next(iter(sorted(problems)), "give the results of asv, or a benchmark.db")
        raise InvalidImportError(f"{path}: no results: {reason.removesuffix(': skipped')}")
    report = ImportReport()
    report.added = store.add_many(chain([first], new)) if first is not None else 0
    report.rows = len(seen)
    report.odd = [f"{n} x {text}" for text, n in sorted(problems.items())]
    return report


def _import_one_run(store: Store, path: Path) -> ImportReport:
    # Here, because they import distributed, which takes half a second.
    from benchkit.store.interchange.cluster_dump import import_cluster_dump
    from benchkit.store.interchange.performance_report import import_performance_report

    is_page = path.suffix in _PAGES
    return import_performance_report(store, path) if is_page else import_cluster_dump(store, path)


def _records(
    file: Path,
    in_folder: bool,
    read: Callable[[Path], Any],
    host: str | None,
    problems: Counter[str],
) -> list[dict[str, Any]]:
    """Return the records of a file; in a folder, a file that cannot be read is a problem."""
    try:
        content = _read_json(file)
        if _is(content, "benchmarks", list):
            return list(pytest_records(content, host, file, problems))
        if _is(content, "entries", dict):
            return list(github_action_records(content, host, problems))
        if _is(content, "results", dict):
            try:
                described = _described(file, read)
            except InvalidImportError:
                if not in_folder:
                    raise
                described = {"machine": {}}  # the damaged file is a problem of its own
            return list(_asv_records(content, described, host))
        if not in_folder:
            raise InvalidImportError(f"{file}: contains no results of a known tool")
        if file.name not in _ASV_DESCRIPTIONS:
            problems["file without results of a known tool: skipped"] += 1
    except InvalidImportError as error:
        if not in_folder:
            raise
        problems[f"{error}: skipped"] += 1
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        problem = f"{file}: a result cannot be read: {error_summary(error)}"
        if not in_folder:
            raise InvalidImportError(problem) from error
        problems[f"{problem}: skipped"] += 1
    return []


def _refuse_host(host: str | None, path: Path) -> None:
    if host and path.exists():
        raise InvalidImportError(f"{path}: --host is for results in JSON files")


def _described(file: Path, read: Callable[[Path], Any]) -> Mapping[str, Any]:
    """Return what asv says about its benchmarks by name, and about the machine of a result."""

    def description(path: Path) -> Mapping[str, Any]:
        content = read(path) if path.is_file() else {}
        return content if isinstance(content, dict) else {}

    return {**description(file.parent.parent / "benchmarks.json"),
            **description(file.parent / "benchmarks.json"),
            "machine": description(file.parent / "machine.json")}  # fmt: skip


def _read_json(path: Path) -> Any:
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise InvalidImportError(f"{path}: not a file")
    try:
        text = path.read_text(encoding="utf-8")
        # github-action-benchmark writes a script that assigns an object.
        return json.loads(
            text.partition("=")[2].rstrip().rstrip(";") if path.suffix == ".js" else text
        )
    except OSError as error:
        raise InvalidImportError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidImportError(f"{path}: not JSON: {error}") from error


def _is(content: Any, key: str, kind: type) -> bool:
    return isinstance(content, dict) and isinstance(content.get(key), kind)


def _asv_records(
    content: Mapping[str, Any], described: Mapping[str, Any], host: str | None
) -> Iterator[dict[str, Any]]:
    requirements = {**(content.get("requirements") or {}), **(content.get("params") or {})}
    machine = {**described["machine"], **requirements}
    facts = {tag: str(machine[name]) for name, tag in _MACHINE.items() if machine.get(name)}
    date = datetime.fromtimestamp(content["date"] / 1000, timezone.utc)
    for name, row in _asv_rows(content):
        about = described.get(name) or {}
        tags = dict(facts)
        if row.get("started_at"):
            measured = datetime.fromtimestamp(row["started_at"] / 1000, timezone.utc)
            tags["measured"] = measured.isoformat(timespec="seconds")
        function = name.rpartition(".")[2]
        metric = _ASV_METRICS.get(function.partition("_")[0], function)
        unit = str(about.get("unit") or "1")
        results, samples = row["result"] or [], row.get("samples") or []
        for index, case in enumerate(product(*(row.get("params") or []))):
            value = results[index] if index < len(results) else None
            taken = samples[index] if index < len(samples) else None
            names = about.get("param_names") or [f"param{n + 1}" for n in range(len(case))]
            yield result_record(
                "asv",
                f"{name}[{','.join(case)}]" if case else name,
                date,
                dict(zip(names, case, strict=False)),
                {metric: value},
                units=_UNITS.get(unit, unit),
                tags=tags,
                n_samples=len(taken) if taken else None,
                source_hash=row.get("version"),
                environment=content.get("env_name") or _old_environment(content),
                host=host or machine.get("machine"),
                python=content.get("python"),
                dask=requirements.get("dask"),
                distributed=requirements.get("distributed"),
                git_commit=content.get("commit_hash"),
            )


def _old_environment(content: Mapping[str, Any]) -> str | None:
    """Return the name that asv gives an environment; its first format has none in the file."""
    if not content.get("python"):
        return None
    needs = sorted((content.get("requirements") or {}).items())
    return "-".join([f"py{content['python']}", *(f"{name}{version}" for name, version in needs)])


def _asv_rows(content: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the row of each benchmark; before version 2 of the format it is a dict or a number."""
    columns = content.get("result_columns")
    for name, values in content["results"].items():
        if columns:
            yield name, dict(zip(columns, values, strict=False))
        else:
            row = values if isinstance(values, Mapping) else {"result": [values]}
            started = content.get("started_at") or {}
            yield name, {**row, "started_at": started.get(name)}
