"""`benchkit bisect` on the commits of a local package: some are slower, two are broken."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.commands import run_benchkit
from helpers.git_package import PROJECT, WORKLOAD, commit_package, git, release_package

from benchkit.cli.main import benchkit as main
from benchkit.experiment.bisect.result import read_bisection
from benchkit.store.store import Store

N_COMMITS = 7
#: The first slower commit; the effect is larger than the noise of a busy machine.
SLOW = 5
#: A commit that cannot be built, and a commit that cannot be imported.
UNBUILDABLE, BROKEN = 2, 3
CLUSTER = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a folder with a repository of some commits, and workloads that use its package."""
    folder = tmp_path_factory.mktemp("bisect")
    for name in ("w", "e"):
        (folder / name).mkdir()
    (folder / "w" / "own.py").write_text(WORKLOAD)
    (folder / "e" / "plain.yaml").write_text("packages: [dask, distributed]\n" + CLUSTER)
    for number in range(N_COMMITS):
        factor = 2.5 if number >= SLOW else 1.0
        code = f"FACTOR = {factor}\nCOMMIT = {number}\n"
        if number == BROKEN:
            code = "raise RuntimeError('half a merge')\n"
        project = PROJECT.replace('"backend"', '"no_such_backend"')
        commit_package(folder / "naplib", code, f"commit {number}",
                       project if number == UNBUILDABLE else PROJECT)  # fmt: skip
    return folder


def commits(folder):
    return git(folder / "naplib", "log", "--reverse", "--format=%H").split()


def benchkit(*more, command="bisect", store="store"):
    folders = ["--workloads", "w", "--environments", "e", "--store", store]
    return [sys.executable, "-m", "benchkit", command, *more, *folders]


def bisect(folder, *more, **options):
    return run_benchkit(benchkit(*more, **options)[3:], folder)


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.environment
@pytest.mark.timeout(900)
def test_bisect_in_a_bucket_is_resumed_by_another_machine(project, real_bucket, monkeypatch):
    shas = commits(project)
    machines = [Path(os.environ["BENCHKIT_CACHE"]), project / "cache of another machine"]
    for folder in (*machines, project / "built"):  # environments are built once for both
        folder.mkdir()
    for folder in machines:
        (folder / "environments").symlink_to(project / "built")
    command = ["own.naps", "--git", "naplib", "--good", shas[SLOW - 1], "--bad", shas[SLOW]]
    interrupted = bisect(project, *command, "-e", "plain", "--budget", "1s", store=real_bucket)
    assert interrupted.returncode == 4, interrupted.stderr
    before = set(Store(real_bucket).ids())

    monkeypatch.setenv("BENCHKIT_CACHE", str(machines[1]))
    done = bisect(project, "--resume", "latest", "--json", "--budget", "9m", store=real_bucket)

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert (rows[0]["status"], rows[0]["first_bad"]) == ("found", shas[SLOW][:10])
    store = Store(real_bucket)
    assert before < set(store.ids())
    assert sum(row["runs"] for row in rows) == len(store)
    assert read_bisection(store).first.sha == shas[SLOW]
    report = run_benchkit(["report", "bisect", "--store", real_bucket], project)
    assert report.returncode == 0, report.stderr
    assert "bisect.html" in {name.rpartition("/")[2] for name in store.files.walk("experiments")}
    assert not (project / real_bucket.partition(":")[0]).exists()


@pytest.mark.slow
@pytest.mark.environment
@pytest.mark.timeout(600)
def test_bisect_finds_slower_commit_despite_broken_builds(project):
    shas = commits(project)
    process = subprocess.Popen(
        benchkit("own.naps", "--git", "naplib", "--good", shas[0], "--bad", "main", "-e", "plain"),
        cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    # Ctrl-C after a few runs: they are not measured again.
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        if (project / "store" / "store.json").exists() and len(Store(project / "store")) >= 3:
            break
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 130, stderr
    assert "benchkit bisect --resume" in stderr
    before = set(Store(project / "store").ids())

    done = bisect(project, "--resume", "latest", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows[0]["status"] == "found"
    assert rows[0]["confidence"] >= 0.95
    assert rows[0]["first_bad"] == shas[SLOW][:10]
    assert 1.5 < rows[0]["step_ratio"] < 4  # 2.5, on a busy machine
    verdicts = {row["build"]: row["verdict"] for row in rows}
    assert verdicts[shas[0][:10]] == "good"
    assert verdicts[shas[-1][:10]] == "bad"
    # A build that the search did not measure can be called good by its place.
    for row in rows:
        if row["build"] in {shas[UNBUILDABLE][:10], shas[BROKEN][:10]}:
            assert row["verdict"] in ("left out", "") or row["runs"] == row["failed"]
    left_out = {row["build"]: row["note"] for row in rows if row["verdict"] == "left out"}
    if shas[BROKEN][:10] in left_out:
        assert "half a merge" in left_out[shas[BROKEN][:10]]

    store = Store(project / "store")
    assert before < set(store.ids())
    assert sum(row["runs"] for row in rows) == len(store)
    again = read_bisection(store)
    assert again.first.sha == shas[SLOW]
    assert store.check().healthy
    assert (project / "naplib" / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"

    page = run_benchkit(["report", "bisect", "--store", "store"], project)
    assert page.returncode == 0, page.stderr
    text = (project / page.stdout.strip()).read_text()
    assert f"first bad: naplib {shas[SLOW][:10]} commit {SLOW}" in text
    assert "data-root-id" in text


@pytest.mark.slow
@pytest.mark.environment
@pytest.mark.timeout(600)
def test_bisect_reports_ends_that_do_not_differ(project):
    shas = commits(project)
    where = ["--good", shas[SLOW], "--bad", shas[-1], "-e", "plain", "--max-repeats", "3"]
    done = bisect(project, "own.naps", "--git", "naplib", *where, store="same")

    assert done.returncode == 4, done.stderr
    assert "are the same in duration" in done.stdout or "cannot be distinguished" in done.stdout


@pytest.mark.slow
@pytest.mark.environment
@pytest.mark.timeout(600)
def test_bisect_step_works_with_git_bisect_run(project):
    shas, package = commits(project), project / "naplib"  # whose environments exist
    step = benchkit("own.naps", "--git", "naplib", "--good", shas[0], "--bad", shas[-1], "-e",
                    "plain", "--git-step", "-q", "-n", "1", store="steps")  # fmt: skip
    script = project / "step.sh"
    script.write_text(f"cd {project} && {' '.join(step)}\n")

    git(package, "checkout", "-q", shas[UNBUILDABLE])
    assert subprocess.run(["sh", str(script)], timeout=280, capture_output=True).returncode == 125
    ends = {shas[0][:10], shas[-1][:10]}
    measured = Store(project / "steps").runs()
    assert set(measured["arm"]) == ends

    git(package, "bisect", "start", shas[SLOW + 1], shas[SLOW - 1])
    done = subprocess.run(
        ["git", "bisect", "run", "sh", str(script)],
        cwd=package, capture_output=True, text=True, timeout=350,
    )  # fmt: skip
    git(package, "bisect", "reset")
    git(package, "checkout", "-q", "main")
    output = done.stdout + done.stderr
    assert f"{shas[SLOW]} is the first bad commit" in output, output

    # Later steps reuse the runs of the ends, and report their number.
    runs = Store(project / "steps").runs()
    arms = runs[~runs["id"].isin(measured["id"])].groupby(["experiment", "block"])["arm"].agg(set)
    assert len(arms) >= 2
    assert ends not in list(arms)
    row = read_bisection(project / "steps").table().set_index("build").loc[shas[0][:10]]
    assert row["runs"] >= len(measured) // 2 + len(arms) // 2


@pytest.mark.slow
@pytest.mark.environment
@pytest.mark.timeout(900)
def test_bisect_finds_the_package_then_its_release_then_its_commit(tmp_path):
    for name in ("w", "e"):
        (tmp_path / name).mkdir()
    (tmp_path / "w" / "own.py").write_text(WORKLOAD)
    releases = {0: "1.0", 1: "1.1", 4: "1.2", 5: "1.3"}
    project = PROJECT.replace("naplib", "nap-of-benchkit-tests")  # no index has it
    shas = []
    for number in range(6):
        version = next(v for n, v in releases.items() if n >= number)
        code = f"FACTOR = {2.5 if number >= 3 else 1.0}\nCOMMIT = {number}\n"
        text = project.replace('"1.0"', f'"{version}"')
        shas.append(commit_package(tmp_path / "nap", code, f"commit {number}", text))
        if number in releases:
            release_package(tmp_path / "nap", version, tmp_path / "wheels")
    for end, (nap, toolz) in {"old": ("1.0", "0.12.1"), "new": ("1.3", "1.0.0")}.items():
        lines = f"[dask, distributed, nap-of-benchkit-tests=={nap}, toolz=={toolz}]"
        (tmp_path / "e" / f"{end}.yaml").write_text(f"packages: {lines}\n{CLUSTER}")

    done = run_benchkit(
        benchkit("old", "new", "own.naps", "--git", "nap", "--json")[3:],
        tmp_path,
        UV_FIND_LINKS=str(tmp_path / "wheels"),
    )

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    found = {row["bisect"]: row["first_bad"] for row in rows if row["status"] == "found"}
    assert list(found.values()) == ["nap-of-benchkit-tests=1.3", "1.2", shas[3][:10]]


GIT = "own.naps --git naplib --good {} --bad {}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "a workload to bisect is missing"),
        ("own.naps", "name the package that changed: --package NAME"),
        ("own.naps --git naplib", "both ends are needed"),
        ("own.nope --git naplib --good main~1 --bad main", "own.nope"),
        ("own.naps --git nowhere --good a --bad b", "nowhere: no such folder"),
        (GIT.format("zzz", "main"), "--good zzz: naplib has no such commit"),
        (GIT.format("main", "main~1"), "must be an ancestor"),
        (GIT.format("main~1", "main") + " --metric dura", "dura"),
        ("own.naps --git w --good a --bad b", "--git w"),
        ("own.naps --package dask --good x --bad 2024.1.0", "--package dask: Invalid version"),
        ("own.naps --package dask --good 2024.5.0 --bad 2024.1.0", "must be the older one"),
        ("--resume latest", "no store there"),
    ],
)
def test_bisect_rejects_arguments_before_writing(project, monkeypatch, arguments, message):
    monkeypatch.chdir(project)
    done = CliRunner().invoke(main, benchkit(*arguments.split(), store="none")[3:])

    assert done.exit_code == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project / "none" / "runs").exists()
