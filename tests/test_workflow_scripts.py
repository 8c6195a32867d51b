"""The script of each step of the workflows, run as on a hosted runner; benchkit is the real one.

Programs that need GitHub or the network (`gh`, `pip`) are replaced by ones that record their words.
Steps that are not run here, see `ELSEWHERE`: `.ci/run` and `.ci/python` run these tests, and its
installation is tested in `test_workflows.py`; `.ci/audit` is run there without a network; the site
of the documentation is built by `test_docs.py`; the check of its links needs the sites of others.
The steps of the workflow that `benchkit init` writes are run by
`tests/experiment/project/test_project.py`.
"""

import json
import os
import shutil
import subprocess
import sys
import time

import pandas as pd
import pytest
from helpers.git_server import GitServer
from helpers.github_server import GitHubServer
from helpers.workflow_steps import FILES, RECORDED, ROOT, Runner, script, scripts, variables

from benchkit.measure.run_ids import new_id
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

VENV = ["bin/python", "-m", "venv", ".venv"]
INSTALL = [".venv/bin/python", "-m", "pip", "install", "-q"]
#: (workflow, job, start of the step) -> commands of a step that installs.
INSTALLATIONS = {
    ("ab", "measure", "python -m venv"): [VENV, [*INSTALL, ".[all]"]],
    ("nightly", "measure", "python -m venv"): [VENV, [*INSTALL, ".[all]"]],
    ("nightly", "publish", "python -m venv"): [VENV, [*INSTALL, ".[show,github]"]],
    ("tests", "docs", "python -m venv"): [VENV, [*INSTALL, ".[docs]"]],
    ("tests", "audit", "python -m venv"): [VENV, [*INSTALL, ".[all]"]],
    ("release", "build", "python -m pip"): [["bin/python", *INSTALL[1:], "build", "twine"]],
    ("release", "install", "Install the wheel"): [
        ["bin/python", *INSTALL[1:], "dist/dask_benchkit-9.9.9-py3-none-any.whl[show]"]
    ],
}
#: Other steps that a test of this file runs.
HERE = [
    ("ab", "measure", ".venv/bin/benchkit ab"),
    ("ab-comment", "comment", "Comment"),
    ("nightly", "measure", "Measure and judge"),
    ("nightly", "measure", "Collect"),
    ("nightly", "publish", "Add the new files"),
    ("nightly", "publish", "Keep"),
    ("nightly", "publish", "Open and close issues"),
    ("release", "build", "python -m build"),
    ("release", "build", "python -m twine"),
    ("release", "build", "Compare the version"),
    ("release", "install", "benchkit run"),
    ("release", "install", "benchkit report"),
]
ELSEWHERE = [
    ("tests", "tests", ".ci/run"),
    ("tests", "oldest", ".ci/python"),
    ("tests", "docs", ".venv/bin/sphinx-build -W"),
    ("tests", "docs", ".venv/bin/sphinx-build -q -b linkcheck"),
    ("tests", "audit", ".ci/audit"),
]
#: Two environments of the interpreter of the tests: nothing is installed.
CLUSTER = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


def test_each_step_with_a_script_is_run():
    known = [*INSTALLATIONS, *HERE, *ELSEWHERE]
    for path in FILES:
        for job, name in scripts(path.stem):
            found = [step for step in known if step[:2] == (path.stem, job)]
            assert len([step for step in found if name.startswith(step[2])]) == 1, (job, name)
    for step in known:
        assert script(*step)


@pytest.mark.parametrize("step", INSTALLATIONS, ids=" ".join)
def test_installation_step_runs_these_commands(runner, step):
    runner.add_command("bin/python", RECORDED)
    (runner.folder / "dist").mkdir()
    (runner.folder / "dist" / "dask_benchkit-9.9.9-py3-none-any.whl").touch()
    (runner.folder / "dist" / "dask_benchkit-9.9.9.tar.gz").touch()

    done = runner(script(*step))

    assert done.returncode == 0, done.stderr
    assert runner.calls() == INSTALLATIONS[step]


def add_environments(folder, *names):
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.yaml").write_text(CLUSTER)


@pytest.mark.slow
@pytest.mark.timeout(600)  # starts kernels and clusters
def test_ab_step_compares_base_and_head(runner):
    add_environments(runner.folder / ".github" / "environments", "base", "head")

    done = runner(script("ab", "measure", ".venv/bin/benchkit ab"))

    assert done.returncode == 4, done.stderr  # a run a side gives no verdict
    words = "ab base head --environments .github/environments -k profile:quick --budget 60m"
    assert runner.calls() == [["benchkit", *words.split(), "--output", "out"]]
    runs = Store(runner.folder / "store").runs()
    assert dict(runs["arm"].value_counts()) == {"base": 1, "head": 1}
    assert set(runs["outcome"]) == {"ok"}
    assert {"ab.md", "ab.html"} <= files(runner.folder / "out")


@pytest.mark.slow
@pytest.mark.timeout(600)  # starts kernels and clusters
def test_measure_step_measures_three_environments(runner):
    add_environments(runner.folder / "environments", "tip", "release", "control")
    (runner.folder / "store").mkdir()
    (runner.folder / "store" / "half-made").touch()  # a checkout without a store
    select = "sched.task_throughput and n=1000"

    done = runner(script("nightly", "measure", "Measure"), SELECT=select, BUDGET="10m")

    assert done.returncode == 0, done.stderr
    words = ["-k", select, "-e", "tip", "-e", "release", "--control", "control"]
    assert runner.calls() == [["benchkit", "nightly", *words, "--budget", "10m", "--output", "out"]]
    runs = Store(runner.folder / "store").runs()
    assert set(runs["environment"]) == {"tip", "release", "control"}
    assert set(runs["workload"]) == {"sched.task_throughput[n=1000]"}
    assert not (runner.folder / "store" / "half-made").exists()
    assert (runner.folder / "started").exists()
    assert "summary.md" in files(runner.folder / "out")


@pytest.mark.slow
@pytest.mark.timeout(600)  # starts kernels and clusters
def test_issue_step_opens_one_issue_for_a_regression(runner):
    store = Store(runner.folder / "store")
    noise = [0.0, 0.01, -0.01, 0.005, -0.005]
    for day in range(1, 25):
        duration = (10.0 if day < 22 else 14.0) * (1 + noise[day % 5])
        started = f"2026-11-{day:02}T02:00:00.000000+00:00"
        store.add(make_run(started=started, duration=duration))
    server = GitHubServer("night-token")

    try:
        done = runner(
            script("nightly", "publish", "Open and close issues"),
            GITHUB_TOKEN="night-token", GITHUB_REPOSITORY="dask/perf", GITHUB_API_URL=server.url,
            SITE="https://dask.github.io/perf",
        )  # fmt: skip
    finally:
        server.close()

    assert done.returncode == 1, done.stderr  # a regression is open
    (issue,) = server.issues.values()
    assert "array.basic_sum[chunks=thin]" in issue["title"]
    assert "https://dask.github.io/perf/" in issue["body"]
    words = "--no-measure --no-report --control control --issues github --site"
    assert runner.calls() == [
        ["benchkit", "nightly", *words.split(), "https://dask.github.io/perf"]
    ]


#: `python -m build` of the environment of the tests: a new one needs the network.
BUILD = f"""#!{sys.executable}
import os, sys
words = sys.argv[1:] + ["--no-isolation"] * (sys.argv[1:] == ["-m", "build"])
os.execv({sys.executable!r}, [{sys.executable!r}, *words])
"""


@pytest.mark.slow
@pytest.mark.timeout(600)  # starts kernels and clusters
@pytest.mark.environment
def test_release_steps_build_the_version_of_the_tag(runner):
    git(runner.folder, "clone", "-q", "--no-tags", str(ROOT), "checkout")
    git(runner.folder / "checkout", "tag", "v9.9.9")
    build = Runner(runner.folder / "checkout")
    build.add_command("bin/python", BUILD)
    for part in ("python -m build", "python -m twine"):
        done = build(script("release", "build", part))
        assert done.returncode == 0, done.stdout + done.stderr
    compare = script("release", "build", "Compare the version")

    assert done.stdout.count("PASSED") == 2
    assert build(compare, TAG="v9.9.9").returncode == 0
    done = build(compare, TAG="v9.9.8")
    assert done.returncode == 1
    assert done.stdout.split() == [
        "dask_benchkit-9.9.9-py3-none-any.whl",
        "dask_benchkit-9.9.9.tar.gz",
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)  # starts kernels and clusters
def test_release_steps_measure_and_report(runner):
    command = runner.folder / ".venv" / "bin" / "benchkit"
    runner.add_command("bin/benchkit", command.read_text())
    for part in ("benchkit run", "benchkit report"):
        done = runner(script("release", "install", part))
        assert done.returncode == 0, done.stderr

    (run,) = Store(runner.folder / "store")
    assert (run.workload, run.outcome) == ("sched.task_throughput[n=1000]", "ok")
    assert runner.calls() == [
        ["benchkit", "run", "sched.task_throughput[n=1000]", "--scale", "0.1"],
        ["benchkit", "report", "run", "latest"],
    ]
    assert any(name.endswith(".html") for name in files(runner.folder))


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_collect_step_copies_only_new_files(runner):
    store = runner.folder / "store"
    (store / "runs" / "2026-11").mkdir(parents=True)
    (store / "tmp").mkdir()
    (store / ".git").mkdir()
    (store / "runs" / "2026-11" / "old.nc").touch()
    (store / "store.json").touch()
    time.sleep(0.05)
    (runner.folder / "started").touch()
    time.sleep(0.05)
    for name in ("runs/2026-11/new.nc", "marks.json", "tmp/draft", ".git/index"):
        (store / name).touch()
    os.utime(store / "store.json", (0, 0))  # always sent: what arrives must be a store

    done = runner(script("nightly", "measure", "Collect"))

    assert done.returncode == 0, done.stderr
    assert files(runner.folder / "new") == {"runs/2026-11/new.nc", "marks.json", "store.json"}
    assert runner.output.read_text() == "measured=true\n"


@pytest.mark.parametrize("made", [[], ["started"], ["started", "store"]])
def test_collect_step_reports_night_without_runs(runner, made):
    for name in made:
        (runner.folder / name).mkdir() if name == "store" else (runner.folder / name).touch()

    done = runner(script("nightly", "measure", "Collect"))

    assert done.returncode == 0, done.stderr
    assert runner.output.read_text() == ""


@pytest.fixture
def new_runs(runner):
    """Return the folder `new` with a store of two runs, as the job that measures sends it."""
    store = Store(runner.folder / "new")
    for day in ("2026-11-01T02:00", "2026-11-02T02:00"):
        store.add(make_run(started=f"{day}:00.000000+00:00"))
    return runner.folder / "new"


def test_publish_steps_add_runs_and_write_site(runner, new_runs):
    store = runner.folder / "store"

    done = runner(script("nightly", "publish", "Add the new files"), SITE="")

    assert done.returncode == 0, done.stderr
    assert runner.output.read_text() == ("url=https://dask.github.io/speed\nwritten=true\n")
    assert (runner.folder / "site" / "index.html").exists()
    assert len(Store(store)) == 2
    assert run_files(new_runs) == run_files(store)


def run_files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("runs/*/*.nc")}


def git(folder, *words):
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def keep(runner, remote, **changes):
    """Run the step that replaces the branch, as on the hosted runner."""
    step = ("nightly", "publish", "Keep")
    given = variables(*step, workspace=str(runner.folder), token=TOKEN, server_url="",
                      repository="")  # fmt: skip
    return runner(script(*step), **{**given, "REMOTE": str(remote), **changes})


TOKEN = "ghs_0123456789abcdef"


def test_keep_step_replaces_branch_and_keeps_files_of_others(runner, new_runs):
    remote, store = runner.folder / "remote.git", runner.folder / "store"
    git(runner.folder, "init", "-q", "--bare", str(remote))
    new_runs.rename(store)
    assert keep(runner, remote).returncode == 0
    first = files(store) - {name for name in files(store) if name.startswith("tmp")}
    assert set(git(remote, "ls-tree", "-r", "--name-only", "benchkit-store").split()) == first

    # The next night: a checkout, new files, and meanwhile a push of another job.
    for name in ("next", "other"):
        clone = ("clone", "-q", "--depth", "1", "-b", "benchkit-store", f"file://{remote}", name)
        git(runner.folder, *clone)
        (runner.folder / name / f"{name}.json").write_text("{}")
    git(runner.folder / "other", "add", "-A")
    git(runner.folder / "other", "-c", "user.name=o", "-c", "user.email=o", "commit", "-qm", "o")
    git(runner.folder / "other", "push", "-q")
    for name in ("store", "store.git"):
        shutil.rmtree(runner.folder / name)
    (runner.folder / "next").rename(store)
    (store / ".git").rename(runner.folder / "store.git")
    done = keep(runner, remote)

    assert done.returncode == 0, done.stderr
    kept = set(git(remote, "ls-tree", "-r", "--name-only", "benchkit-store").split())
    assert kept == first | {"next.json", "other.json"}
    assert git(remote, "rev-list", "--count", "benchkit-store") == "1"


def test_keep_step_leaves_out_oldest_runs_above_limit(runner):
    remote = runner.folder / "remote.git"
    git(runner.folder, "init", "-q", "--bare", str(remote))
    store, now = Store(runner.folder / "store"), pd.Timestamp.now("UTC").tz_localize(None)
    for days in (400, 100, 1):
        started = now - pd.Timedelta(days=days)
        store.add(make_run(started=f"{started.isoformat()}+00:00"))

    done = keep(runner, remote, LIMIT_MB="0")

    assert done.returncode == 0, done.stderr
    kept = git(remote, "ls-tree", "-r", "--name-only", "benchkit-store").split()
    assert len([name for name in kept if name.endswith(".nc")]) == 1
    assert not [name for name in kept if name.startswith("trash")]


#: Writes its words to a file, then runs git.
GIT = """#!{python}
import json, os, sys
open("WORDS", "a").write(json.dumps(sys.argv) + chr(10))
os.execv("PROGRAM", ["git", *sys.argv[1:]])
"""


def add_hostile_files(upload, folder, experiment):
    """Write what could harm the job that publishes into an upload; return who executes a file."""
    executed = folder / "executed"
    attack = f"env > {executed}; true"
    for git_folder in (upload / ".git", upload / "experiments" / experiment / ".git"):
        (git_folder / "hooks").mkdir(parents=True)
        (git_folder / "commondir").write_text(f"../{experiment}")
        for hook in ("pre-commit", "pre-push", "post-index-change", "reference-transaction"):
            (git_folder / "hooks" / hook).write_text(f"#!/bin/sh\n{attack}\n")
            (git_folder / "hooks" / hook).chmod(0o755)
    # A folder that can be the configuration of git: `.git/commondir` names it.
    common = upload / experiment
    shutil.copytree(folder / "store" / ".git", common)
    for config in (common / "config", upload / ".git" / "config"):
        config.write_text(f'[core]\n\tbare = false\n\tfsmonitor = "{attack}"\n')
    (upload / ".gitattributes").write_text("* filter=lfs\n")
    secret = folder / "secret"
    (secret / "marks").mkdir(parents=True)
    (secret / "marks" / f"{experiment}.json").write_text("secret")
    inside, month = upload / "experiments" / experiment, upload / "runs" / "2026-11"
    (inside / "file-link").symlink_to(secret / "marks" / f"{experiment}.json")
    (inside / "folder-link").symlink_to(secret)
    (upload / "marks").symlink_to(secret / "marks")
    os.link(secret / "marks" / f"{experiment}.json", inside / "hard-link")
    for name in ("line\nbreak", "-rf", "--output=x", ".hidden/plan.json", "..a", "$(touch x)"):
        (inside / name).parent.mkdir(exist_ok=True)
        (inside / name).write_text(attack)
    os.mkfifo(inside / "pipe")
    os.mkfifo(month / f"{new_id()}.nc")
    (month / f"{new_id()}.nc").mkdir()
    (upload / "index" / "new" / f"{experiment}.json").write_text('{"id": "made up"}')
    return executed


def test_publish_steps_take_only_whole_new_runs_of_a_hostile_upload(runner):
    store, upload = runner.folder / "store", runner.folder / "new"
    (runner.folder / "served").mkdir()
    server = GitServer(runner.folder / "served", TOKEN)
    try:
        remote = server.create("speed.git")
        first = make_run(started="2026-11-01T02:00:00+00:00")
        Store(store).add(first)
        assert keep(runner, remote).returncode == 0
        published, duration = run_files(store), Store(store).runs()["duration"][0]
        shutil.rmtree(store)
        (runner.folder / "store.git").rename(store.with_name("old.git"))
        branch = ("-b", "benchkit-store", runner.folder / "served" / "speed.git", "store")
        git(runner.folder, "clone", "-q", "--depth", "1", *branch)

        whole = make_run(started="2026-11-02T02:00:00+00:00")
        broken = make_run(started="2026-11-03T02:00:00+00:00")
        changed = make_run(started="2026-11-01T02:00:00+00:00", id=first.attrs["id"], duration=1.0)
        ids = [Store(upload).add(run) for run in (changed, whole, broken)]
        path = upload / "runs" / "2026-11" / f"{ids[2]}.nc"
        path.write_bytes(path.read_bytes()[:-100])
        (upload / "experiments" / ids[1] / "notebooks").mkdir(parents=True)
        (upload / "experiments" / ids[1] / "notebooks" / "0000-a.ipynb").write_text("{}")
        executed = add_hostile_files(upload, runner.folder, ids[1])
        text = GIT.replace("WORDS", str(runner.folder / "words"))
        runner.add_command("bin/git", text.replace("PROGRAM", shutil.which("git")))

        added = runner(script("nightly", "publish", "Add the new files"), SITE="")
        kept = keep(runner, remote)
    finally:
        server.close()

    assert (added.returncode, kept.returncode) == (0, 0), added.stderr + kept.stderr
    assert not executed.exists()
    served = runner.folder / "served" / "speed.git"
    names = git(served, "ls-tree", "-r", "-z", "--name-only", "benchkit-store").split("\0")
    assert [name for name in names if name.startswith("runs/")] == [
        f"runs/2026-11/{run_id}.nc" for run_id in sorted(ids[:2])
    ]
    assert run_files(store).items() >= published.items()
    assert {name for name in names if name.startswith(("experiments/", "marks/", "."))} == {
        f"experiments/{ids[1]}/notebooks/0000-a.ipynb"
    }
    assert f"{ids[2]}.nc" in added.stderr  # says which run is damaged
    assert Store(store).runs().set_index("id")["duration"][ids[0]] == duration
    calls = (runner.folder / "words").read_text()
    assert '"push"' in calls
    for text in (calls, added.stdout, added.stderr, kept.stdout, kept.stderr):
        assert TOKEN not in text


GH = """#!{python}
import json, subprocess, sys
words = sys.argv[1:]
open("calls", "a").write(json.dumps(words) + chr(10))
if "repos/dask/speed/pulls" in words:
    assert "head=someone:fix/a b" in words, words
    pulls = json.load(open("pulls.json"))
    found = [pull["number"] for pull in pulls if pull["head"]["sha"] == "abc"]
    print(*found[:1])
elif "--paginate" in words:
    print(open("known").read(), end="")
"""


@pytest.mark.parametrize(("known", "target"), [
    ("", "repos/dask/speed/issues/12/comments"),
    ("77\n", "repos/dask/speed/issues/comments/77"),
])  # fmt: skip
def test_comment_step_finds_pull_request_of_fork(runner, known, target):
    _stand_in_for_gh(runner, [{"number": 11, "head": {"sha": "def"}},
                              {"number": 12, "head": {"sha": "abc"}}], known)  # fmt: skip

    done = runner(script("ab-comment", "comment", "Comment"), **COMMENT)

    assert done.returncode == 0, done.stderr
    calls = runner.calls()
    assert target in calls[-1]
    assert "body=@comment.md" in calls[-1]
    assert ("PATCH" in calls[-1]) == bool(known)
    assert (runner.folder / "comment.md").read_text() == (
        "<!-- benchkit:ab -->\n| faster |\n\n[The whole report](https://run)\n"
    )


def test_comment_step_skips_commit_that_is_not_the_head(runner):
    _stand_in_for_gh(runner, [{"number": 12, "head": {"sha": "newer"}}], "")

    done = runner(script("ab-comment", "comment", "Comment"), **COMMENT)

    assert done.returncode == 0, done.stderr
    assert "no open pull request of someone:fix/a b has the commit abc" in done.stdout
    assert len(runner.calls()) == 1


COMMENT = {"GH_REPO": "dask/speed", "HEAD": "someone:fix/a b", "SHA": "abc", "RUN": "https://run"}


def _stand_in_for_gh(runner, pulls, known):
    runner.add_command("bin/gh", GH)
    (runner.folder / "pulls.json").write_text(json.dumps(pulls))
    (runner.folder / "known").write_text(known)
    (runner.folder / "out").mkdir()
    (runner.folder / "out" / "ab.md").write_text("| faster |\n")
