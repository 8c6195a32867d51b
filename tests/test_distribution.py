"""The distribution is `dask-benchkit`; the import name and the command are `benchkit`."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchkit.cli.main import benchkit as main
from benchkit.errors import MissingExtra, install_command
from benchkit.experiment.environment.builds import environment_of_run

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parent.parent
#: Files that may name an extra to install.
TEXTS = ["benchkit", "docs", "notebooks", "workloads", *ROOT.glob("*.md")]


def test_install_command_names_the_distribution():
    assert install_command("show") == "pip install 'dask-benchkit[show]'"
    error = MissingExtra("github", "PyGithub")
    assert str(error) == ("PyGithub is not installed: run pip install 'dask-benchkit[github]'")


def test_texts_install_no_distribution_named_benchkit():
    done = subprocess.run(
        ["git", "grep", "-nE", r"(install[^\n]*|\"|')\bbenchkit(\[[a-z]|[=><]=)", "--", *TEXTS],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    wrong = [line for line in done.stdout.splitlines() if not re.search(r"dask-benchkit", line)]
    assert wrong == []


def test_rebuilt_environment_omits_benchkit_of_old_and_new_runs():
    attrs = {
        "id": "0",
        "environment_spec": '{"cluster": {}}',
        "packages": '{"benchkit": "0.1.0", "dask": "2026.7.1", "dask-benchkit": "0.1.0"}',
    }

    assert environment_of_run(attrs, "old").packages == ("dask==2026.7.1",)


def run(*command, cwd):
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd, capture_output=True, text=True, encoding="utf-8", timeout=600,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "BENCHKIT_STORE")},
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    """Return the folder of the sdist and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="session")
def install(distributions, tmp_path_factory):
    """Return a function that installs the wheel with extras in a new virtual environment."""

    def install(extras):
        folder = tmp_path_factory.mktemp("venv")
        uv = (sys.executable, "-m", "uv")
        run(*uv, "venv", "--python", sys.executable, folder / "venv", cwd=folder)
        python = folder / "venv" / "bin" / "python"
        (wheel,) = distributions.glob("*.whl")
        run(*uv, "pip", "install", "--python", python, f"{wheel}{extras}", "pytest", cwd=folder)
        return python.parent

    return install


@pytest.fixture(scope="session")
def installed(install):
    """Return the folder of programs of an environment with the extras of the README."""
    return install("[show,workloads]")


@pytest.fixture
def light(tmp_path):
    """Return the name of an environment whose only worker starts at once.

    Compare times only: the memory of this worker depends on the runs before.
    """
    cluster = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "light.yaml").write_text(cluster)
    return "light"


def commands(command, words=()):
    """Yield the words of each command."""
    yield words
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*words, name))


@pytest.mark.environment
@pytest.mark.slow
@pytest.mark.timeout(900)  # an installation from the index
def test_distributions_pass_twine_check(distributions):
    files = sorted(distributions.iterdir())
    output = run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=distributions)

    assert [path.suffix for path in files] == [".whl", ".gz"]
    assert output.count("PASSED") == 2


@pytest.mark.environment
@pytest.mark.slow
@pytest.mark.timeout(900)  # an installation from the index
def test_distributions_contain_the_files_of_git(distributions):
    def tracked(*folders):
        found = subprocess.run(
            ["git", "ls-files", "--", *folders],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return {name for name in found.stdout.splitlines() if (ROOT / name).exists()}

    (sdist,), (wheel,) = distributions.glob("*.tar.gz"), distributions.glob("*.whl")
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        built = {name for name in archive.namelist() if ".dist-info/" not in name}
    shipped = tracked("notebooks", "workloads", "environments")

    assert tracked() - source == set()
    assert built == tracked("benchkit") | {f"benchkit/shipped/{name}" for name in shipped}


@pytest.mark.environment
@pytest.mark.slow
@pytest.mark.timeout(900)  # an installation from the index
def test_wheel_installs_as_dask_benchkit(installed, distributions, tmp_path):
    where = "import benchkit; print(benchkit.__file__, benchkit.__version__)"
    file, version = run(installed / "python", "-c", where, cwd=tmp_path).split()
    (wheel,) = distributions.glob("*.whl")

    assert Path(file).is_relative_to(installed.parent)
    assert wheel.name == f"dask_benchkit-{version}-py3-none-any.whl"
    printed = run(installed / "benchkit", "--version", cwd=tmp_path)
    assert printed == f"benchkit, version {version}\n"
    assert "--benchkit-store=DIR" in run(
        installed / "python", "-m", "pytest", "--help", cwd=tmp_path
    )
    assert run(installed / "dask", "benchkit", "list", "environments", cwd=tmp_path)


@pytest.mark.environment
@pytest.mark.slow
@pytest.mark.timeout(900)  # an installation from the index
def test_help_of_each_command_works_without_checkout(installed, tmp_path):
    code = "import sys; from benchkit.cli.main import benchkit\n"
    code += "for line in sys.stdin:\n    benchkit([*line.split(), '--help'], standalone_mode=False)"
    every = list(commands(main))
    done = subprocess.run(
        [installed / "python", "-c", code], input="\n".join(" ".join(words) for words in every),
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: ") == len(every) > 40


@pytest.mark.environment
@pytest.mark.slow
@pytest.mark.timeout(900)  # an installation from the index
def test_commands_work_without_checkout(installed, tmp_path):
    def benchkit(*words):
        return run(installed / "benchkit", *words, cwd=tmp_path)

    task = "sched.task_throughput[n=1000]"
    assert re.search(r"n=1000\] +ok ", benchkit("run", task, "-e", "baseline", "--scale", "0.1"))
    assert benchkit("report", "run", "latest").strip().endswith(".html")
    assert benchkit("report", "site", "--output", "site")
    assert "array.basic_sum" in benchkit("list", "workloads", "-k", "array.basic_sum*")
    benchkit("notebooks", "copy")
    benchkit("init", "project")
    names = {path.name for path in tmp_path.iterdir()}
    assert {"benchkit-store", "notebooks", "project", "site"} <= names
    assert {"site.css", "site.js", "index.html"} <= {p.name for p in (tmp_path / "site").rglob("*")}
    assert (tmp_path / "notebooks" / "explore.ipynb").exists()


@pytest.mark.environment
@pytest.mark.slow
@pytest.mark.timeout(900)  # an installation from the index
def test_base_install_measures_compares_and_names_the_extra_of_reports(install, light, tmp_path):
    programs = install("")

    def benchkit(*words):
        return run(programs / "benchkit", *words, cwd=tmp_path)

    task = "sched.task_throughput[n=1000]"
    assert re.search(r"n=1000\] +ok ", benchkit("run", task, "--scale", "0.1"))
    # Equal arms have no row, but two runs a side of a busy machine can differ: no metric of time.
    words = ("--null-only", "-n", "2", "--no-report", "--metric", "n_tasks")
    assert "Of 1 comparison" in benchkit("ab", light, task, *words)
    for words in ("list runs", "diagnose latest", "store check", "env list", "regressions"):
        benchkit(*words.split())
    done = subprocess.run(
        [programs / "benchkit", "report", "run"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "pip install 'dask-benchkit[show]'" in done.stderr
    assert "Traceback" not in done.stderr


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def imported(folder):
    """Return the first parts of the names of modules that the files of a folder import."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


def test_base_install_has_no_dependency_that_base_commands_do_not_use():
    package, modules = ROOT / "benchkit", packages_distributions()
    used = {
        canonicalize_name(name)
        for path in package.iterdir()
        if path.is_dir() and path.name not in ("show", "_compat")
        for module in imported(path)
        for name in modules.get(module, ())
    }
    # Not imported by name: the engine of xarray, and the kernel that is started.
    used |= {"h5netcdf", "ipykernel"}

    assert {
        canonicalize_name(Requirement(r).name) for r in project()["dependencies"]
    } - used == set()


def test_imports_of_benchkit_are_declared_dependencies():
    declared = project()["optional-dependencies"]
    lines = [*project()["dependencies"], *(line for key in declared for line in declared[key])]
    names = {canonicalize_name(Requirement(line).name) for line in lines}
    # Packages that distributed, papermill, boto3, nbconvert and mcp cannot be without.
    names |= {"cloudpickle", "fsspec", "psutil", "tornado", "nbclient", "botocore", "ipython"}
    names |= {"anyio", "msgpack", "pydantic"}
    modules = packages_distributions()
    missing = {
        module for module in imported(ROOT / "benchkit") - sys.stdlib_module_names - {"benchkit"}
        if not {canonicalize_name(name) for name in modules.get(module, [module])} & names
    }  # fmt: skip

    assert missing == set()


def test_conda_recipe_has_the_dependencies_of_the_project():
    def lines(requirements):
        return {re.sub(r"\[.*\]| ", "", line).replace("_", "-") for line in requirements}

    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    run_time, host = recipe["requirements"]["run"], recipe["requirements"]["host"]
    build_system = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]

    assert lines(run_time[1:]) == lines(project()["dependencies"])
    assert lines(host[2:]) == lines(build_system["requires"])
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in project()["scripts"].items()
    ]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("tag", r"1\.2\.3"),
        ("shallow", r"0\.1\.0\.dev1\+g[0-9a-f]+"),
        ("no git", r"0\.1\.0\.dev0"),
        ("sdist", r"4\.5\.6"),
    ],
)
def test_version_is_the_tag_and_works_without_git(state, expected, tmp_path):
    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a")
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "README.md").touch()
    (tmp_path / "LICENSE").touch()
    if state in ("tag", "shallow"):
        git("init", "-q")
        git("add", "-A")
        git("commit", "-qm", "one")
    if state == "tag":
        git("tag", "v1.2.3")
    if state == "sdist":
        (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: x\nVersion: 4.5.6\n")

    version = run(sys.executable, "-m", "hatchling", "version", cwd=tmp_path).strip()

    assert re.fullmatch(expected, version), version
