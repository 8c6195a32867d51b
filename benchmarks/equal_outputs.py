"""Compare the outputs of two revisions: ``python benchmarks/equal_outputs.py A B``.

Revision A makes a store of nights, and one of an A/B and a run with a task graph, with the helpers
of its tests. Each revision then prints every command with ``--json``, and all frames of `Store` and
`Run`, from copies of them. Prints what differs; exit code 1 if anything does.
"""

import argparse
import difflib
import inspect
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
N_NIGHTS = 30
#: Arguments of commands; {run} is the last run of the store, {id} the first.
COMMANDS = {
    "compare": "--baseline tag:arm=A --contender tag:arm=B --all",
    "data list": "",
    "data originals": "",
    "diagnose": "{run}",
    "env diff": "baseline no-stealing",
    "env list": "",
    "env show": "baseline",
    "list": "workloads|environments|runs|metrics|noise",
    "mark list": "",
    "nightly": "--no-measure --no-report -q",
    "notebooks list": "",
    "query": "SELECT * FROM task_groups ORDER BY ALL LIMIT 200",
    "regressions": "",
    "report decisions": "",
    "report trace": "{run} -o trace.json",
    "store check": "",
    "store export": "{run}.csv",
    "store info": "",
    "store prune": "{id}",
    "whatif": "{run} --workers 1,2,4",
}
#: Commands that measure, depend on the machine, draw pages, or change files only.
LEFT_OUT = set(
    "ab|bisect|doctor|env build|env import|env remove|init|report ab|report bisect|report run"
    "|report site|run|simulate|store compact|store copy|store import".split("|")
)
#: Methods that write.
WRITING = {"check", "compact", "create", "panel", "plot"}


def make_stores() -> None:
    """Write the stores `nights` and `runs`."""
    from benchkit.store.store import Store

    folder = "validation" if Path("../code/validation").exists() else "helpers"  # of earlier tests
    modules = ("graph_runs", "history_data", "synthetic_runs")
    graphs, nights, runs = (import_module(f"{folder}.{name}") for name in modules)
    make_run = runs.make_run

    nights.fill("nights", make_run(), n_nights=N_NIGHTS)
    store = Store("runs")
    for number in range(10):
        arm, factor = "AB"[number % 2], 1 + 0.2 * (number % 2)
        duration = factor * (1 + 0.01 * (number // 2))
        facts = {"duration": duration, "arm": arm, "experiment": "e", "block": number // 2}
        store.add(make_run("x.a", seed=number, tags={"arm": arm}, **facts))
    made = graphs.MadeTask
    loads = [made(f"load-{i}", 1 + i // 2, 2 + i // 2, worker=i % 2) for i in range(8)]
    total = made("sum-0", 5.5, 6.5, dependencies=[task.key for task in loads])
    with tempfile.TemporaryDirectory() as recording:
        run = graphs.graph_run(
            Path(recording), [*loads, total], duration=7, n_workers=2,
            submissions=[(1.0, 9)], calls=[(0.3, 0.8, 0.9)],
        )  # fmt: skip
        store.add(run.tree)


def plain(value: Any) -> Any:
    """Return frames, datasets and records as values that JSON has."""
    import numpy as np
    import pandas as pd
    import xarray as xr

    if isinstance(value, pd.DataFrame):
        return value.to_csv(index=not isinstance(value.index, pd.RangeIndex)).splitlines()
    if isinstance(value, pd.Series):
        return value.to_csv().splitlines()
    if isinstance(value, (xr.Dataset, xr.DataArray)):
        return value.to_dict()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value if isinstance(value, (str, int, float, type(None))) else type(value).__name__


def frames(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the value of each property and of each method without arguments."""
    kind = type(thing)
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or name in WRITING:
            continue
        if isinstance(member, property):
            yield f"{kind.__name__}.{name}", plain(getattr(thing, name))
        elif inspect.isfunction(member):
            _, *given = inspect.signature(member).parameters.values()
            if all(p.default is not p.empty or p.kind == p.VAR_KEYWORD for p in given):
                try:
                    value = plain(getattr(thing, name)())
                except Exception as error:  # part of the output
                    value = f"{type(error).__name__}: {error}"
                yield f"{kind.__name__}.{name}", value


def commands(store: str, run: str, first: str) -> Iterator[tuple[str, Any]]:
    """Yield the output of each command with ``--json``."""
    import click
    from benchkit.cli.main import benchkit as main
    from click.testing import CliRunner

    def walk(command: click.Command, words: list[str]) -> Iterator[tuple[str, set[str]]]:
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                found = command.get_command(click.Context(command), name)
                yield from walk(found, [*words, name]) if found else ()
        else:
            yield " ".join(words), {option for p in command.params for option in p.opts}

    for name, options in walk(main, []):
        if "--json" not in options or name in LEFT_OUT:
            continue
        if name not in COMMANDS:
            raise SystemExit(f"{name}: is neither in COMMANDS nor in LEFT_OUT")
        for words in COMMANDS[name].split("|"):
            given = [words] if name == "query" else words.format(run=run, id=first).split()
            place = ["--store", store] if "--store" in options else []
            done = CliRunner().invoke(main, [*name.split(), *given, *place, "--json"])
            lines = done.output.splitlines()
            if name == "nightly":  # the id of the new experiment
                lines = [line for line in lines if '"id"' not in line]
            yield f"{name} {words}", [done.exit_code, *lines]


def print_outputs() -> None:
    """Write all outputs for the stores in this folder to `outputs.json`."""
    import benchkit

    outputs: dict[str, Any] = {}
    for name in ("nights", "runs"):
        store = benchkit.Store(name)
        ids = sorted(path.stem for path in Path(name).glob("runs/*/*.nc"))
        found = [*frames(store), *frames(store.open(ids[0])), *commands(name, ids[-1], ids[0])]
        outputs |= {f"{name}: {key}": value for key, value in found}
    outputs |= {f"graph: {key}": value for key, value in frames(store.open(ids[-1]))}
    Path("outputs.json").write_text(json.dumps(outputs, default=str, indent=1))


def run_revision(revision: str, folder: Path, *words: str) -> None:
    """Run this script with the code of a revision, in a folder."""
    code = folder.parent / "code"  # one path for all: outputs name files of the code
    shutil.rmtree(code, ignore_errors=True)
    packed = subprocess.check_output(["git", "archive", revision], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(code, filter="data")
    path = os.pathsep.join(map(str, (code, code / "tests")))
    environment = {**os.environ, "PYTHONPATH": path, "BENCHKIT_CACHE": str(folder / "cache")}
    command = [sys.executable, str(Path(__file__).resolve()), *words]
    subprocess.run(command, cwd=folder, env=environment, check=True)


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of each output that differ."""
    for name in sorted({*before, *after}):
        old, new = (json.dumps(side.get(name), indent=1).splitlines() for side in (before, after))
        if old != new and sorted(x.strip(",") for x in old) == sorted(x.strip(",") for x in new):
            yield f"{name}: lines in another order"
        elif old != new:
            changed = [line for line in difflib.unified_diff(old, new, n=0) if line[:2] != "@@"]
            shown = [line[:150] for line in changed[2:10]]
            yield "\n  ".join([f"{name}: {len(changed) - 2} lines differ", *shown])


def main() -> None:
    """Compare two revisions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revisions", nargs="+", metavar="REV")
    given = parser.parse_args().revisions
    if given == ["make-stores"]:
        return make_stores()
    if given == ["print-outputs"]:
        return print_outputs()
    if len(given) != 2:
        parser.error("give two revisions")
    with tempfile.TemporaryDirectory() as temporary:
        made, folder = Path(temporary, "made"), Path(temporary, "read")
        made.mkdir()
        run_revision(given[0], made, "make-stores")
        outputs = []
        for revision in given:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(made, folder)
            run_revision(revision, folder, "print-outputs")
            outputs.append(json.loads((folder / "outputs.json").read_text()))
    found = list(differences(*outputs))
    print(*found, f"{len(outputs[1])} outputs, {len(found)} differ", sep="\n")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
