"""What commands import: by package, because seconds depend on the machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchkit.store.store import Store
from validation.graph_runs import graph_run, tasks_of

#: What `list runs` needs: the command line, and the index as tables.
INDEX = {"click", "cloudpickle", "dateutil", "numpy", "pandas", "pyarrow", "six"}
#: Dask without collections.
DASK = {
    "click", "cloudpickle", "dask", "importlib_metadata", "jinja2", "lazy_importer", "markupsafe",
    "packaging", "psutil", "tblib", "tlz", "toolz", "yaml", "zipp",
}  # fmt: skip
#: Reading a run file by xarray, and special functions; not Dask, for which xarray looks.
RUN = INDEX | {"cftime", "charset_normalizer", "h5py", "packaging", "scipy", "xarray"}
#: Packages that no command imports to print runs, and modules that take 0.4 s.
FORBIDDEN = {
    "distributed", "panel", "statsmodels", "dask.array", "dask.dataframe", "scipy.sparse",
    "scipy.stats",
}  # fmt: skip
#: Command -> packages that it may import, and the largest number of modules.
COMMANDS = {
    "--help": ({"click"}, 210),
    "list runs": (INDEX, 780),
    "list metrics": (INDEX, 780),  # runs define metrics, too
    "list workloads": (DASK, 600),
    "regressions": ({"click", "cloudpickle", "numpy", "pyarrow"}, 500),  # events, no runs
    "compare --baseline workload:a --contender workload:a": (RUN, 1250),
    "diagnose": (RUN, 1250),
    "whatif --workers 2": (RUN, 1250),
    # Notebooks and pages.
    "report run --output run.html": (None, 2250),
}
CODE = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from benchkit.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imports")
    tasks = tasks_of(("a-1", 0, 1, ""), ("b-1", 1, 2, "a-1"))
    Store(folder / "store").add(graph_run(folder, tasks, duration=2.0).tree)
    return folder / "store"


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=pytest.mark.slow if "report" in c else ()) for c in COMMANDS],
)
def test_command_imports_only_what_it_needs(store: Path, command: str) -> None:
    allowed, most = COMMANDS[command]
    done = subprocess.run(
        [sys.executable, "-c", CODE, *command.split()],
        env={**os.environ, "BENCHKIT_STORE": str(store)}, capture_output=True, text=True,
        cwd=store.parent,
    )  # fmt: skip

    modules = json.loads(done.stderr.splitlines()[-1])
    assert done.returncode in (0, 4), done.stderr
    packages = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    own = {"benchkit", "cython_runtime", "sitecustomize"}
    others = {name for name in packages - own if not name.startswith(("_", "benchkit_workloads"))}
    assert allowed is None or others <= allowed
    assert not FORBIDDEN & set(modules)
    assert len(modules) <= most
