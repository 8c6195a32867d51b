"""The workflow files: valid, with few permissions, and with commands that exist."""

from __future__ import annotations

import json
import operator
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import pandas as pd
import pytest
import yaml
from helpers.synthetic_runs import make_run

from benchkit.cli.main import benchkit as main
from benchkit.store.store import Store

ROOT = Path(__file__).parent.parent

FOLDER = ROOT / ".github" / "workflows"
COMMAND = re.compile(r"\.venv/bin/benchkit (.*?)(?: \|\| .*)?$", re.MULTILINE)
FILES = sorted(FOLDER.glob("*.yml"))


def read(path):
    # YAML 1.1 reads the key `on` as true.
    return {("on" if k is True else k): v for k, v in yaml.safe_load(path.read_text()).items()}


def steps(path):
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def test_audit_without_network_says_so_and_does_not_fail():
    variables = {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run(
        [ROOT / ".ci" / "audit", sys.prefix], capture_output=True, text=True, env=variables
    )

    assert done.returncode == 0
    assert done.stdout.startswith("audit of dependencies: the advisories of pypi.org are not reach")


def test_workflows_exist_for_all_tasks():
    assert {path.stem for path in FILES} == {"tests", "nightly", "ab", "ab-comment", "release"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_workflow_permissions_are_read_only(path):
    content = read(path)
    assert content["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in content["on"]
    for job in content["jobs"].values():
        assert job.get("timeout-minutes") or len(job["steps"]) < 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_workflow_shell_commands_contain_no_expression(path):
    for step in steps(path):
        assert "${{" not in step.get("run", ""), "pass it through env: it may contain commands"


def test_workflows_pass_actionlint():
    folder = Path(sys.executable).parent
    done = subprocess.run(
        [folder / "actionlint", *FILES],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def test_step_scripts_are_valid_shell():
    scripts = [step["run"] for path in FILES for step in steps(path) if "run" in step]
    assert len(scripts) >= 9
    for text in [*scripts, (ROOT / ".ci" / "run").read_text()]:
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        assert done.stderr == "", text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_checkouts_leave_no_credentials(path):
    for step in steps(path):
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_comment_workflow_runs_no_code_of_pull_request():
    for step in steps(FOLDER / "ab-comment.yml"):
        assert "checkout" not in step.get("uses", "")
        assert not re.search(r"benchkit (?!ab)|python|pip", step.get("run", ""))


@pytest.mark.parametrize("name", ["ab", "nightly"])
def test_measuring_job_has_no_token(name):
    job = read(FOLDER / f"{name}.yml")["jobs"]["measure"]
    assert "permissions" not in job
    text = json.dumps(job)
    assert "github.token" not in text
    assert "secrets." not in text
    assert "GITHUB_TOKEN" not in text


def test_publishing_job_measures_nothing_and_restores_no_cache():
    job = read(FOLDER / "nightly.yml")["jobs"]["publish"]
    for step in job["steps"]:
        for line in step.get("run", "").splitlines():
            assert "benchkit nightly" not in line or "--no-measure" in line
        assert "cache" not in step.get("uses", "")
        assert "cache" not in step.get("with", {})


def test_nightly_sets_one_pool_name_for_hosted_runners():
    host = read(FOLDER / "nightly.yml")["jobs"]["measure"]["env"]["BENCHKIT_HOST"]
    assert "vars.BENCHKIT_RUNNER == '' && 'github-hosted'" in host


def commands():
    for path in FILES:
        for step in steps(path):
            for found in COMMAND.findall(step.get("run", "")):
                yield pytest.param(shlex.split(found), id=f"{path.stem}: {found[:40]}")


@pytest.mark.parametrize("words", list(commands()))
def test_workflow_commands_are_valid(words):
    command, context = main, click.Context(main, **main.context_settings)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
        assert command is not None
    # Parse the options and run nothing; closing restores the variables that options set.
    command.make_context(command.name, words, parent=context).close()


@pytest.mark.parametrize("name", ["base", "head"])
def test_workflow_environments_use_checked_out_code(name, tmp_path):
    from benchkit.experiment.environment.lookup import find_environment

    for folder in ("base", "head", ".github/environments"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "pyproject.toml").write_text(f"[project]\nname = '{name}'\n")
    text = (FOLDER.parent / "environments" / f"{name}.yaml").read_text()
    (tmp_path / ".github" / "environments" / f"{name}.yaml").write_text(text)
    environment = find_environment(name, [tmp_path / ".github" / "environments"])
    assert environment.requirements()[0].source == str(tmp_path / name)


def script(workflow, part):
    """Return the shell script of the step whose name starts with `part`."""
    (found,) = [
        step["run"] for step in steps(FOLDER / f"{workflow}.yml")
        if step.get("name", "").startswith(part)
    ]  # fmt: skip
    return found


@pytest.fixture
def runner(tmp_path):
    """Return a function that runs a script as a hosted runner does, in a folder with benchkit."""
    command = tmp_path / ".venv" / "bin" / "benchkit"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m benchkit "$@"\n')
    command.chmod(0o755)
    output = tmp_path / "github-output"
    output.touch()

    def run(text, **variables):
        path = Path(tempfile.mkstemp(dir=tmp_path, suffix=".sh")[1])
        path.write_text(text)
        environment = {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path),
            "GITHUB_OUTPUT": str(output), "GITHUB_RUN_ID": "7", "BENCHKIT_STORE": "store",
            "GITHUB_REPOSITORY": "dask/speed", **variables,
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-e", str(path)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        path.unlink()
        return done

    run.folder, run.output = tmp_path, output
    return run


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_collect_step_copies_only_new_files(runner):
    store = runner.folder / "store"
    (store / "runs" / "2026-11").mkdir(parents=True)
    (store / "tmp").mkdir()
    (store / ".git").mkdir()
    (store / "runs" / "2026-11" / "old.nc").touch()
    time.sleep(0.05)
    (runner.folder / "started").touch()
    time.sleep(0.05)
    for name in ("runs/2026-11/new.nc", "marks.json", "tmp/draft", ".git/index"):
        (store / name).touch()

    done = runner(script("nightly", "Collect"))

    assert done.returncode == 0, done.stderr
    assert files(runner.folder / "new") == {"runs/2026-11/new.nc", "marks.json"}
    assert runner.output.read_text() == "measured=true\n"


@pytest.mark.parametrize("made", [[], ["started"], ["started", "store"]])
def test_collect_step_reports_night_without_runs(runner, made):
    for name in made:
        (runner.folder / name).mkdir() if name == "store" else (runner.folder / name).touch()

    done = runner(script("nightly", "Collect"))

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

    done = runner(script("nightly", "Add the new files"), SITE="")

    assert done.returncode == 0, done.stderr
    assert runner.output.read_text() == ("url=https://dask.github.io/speed\nwritten=true\n")
    assert (runner.folder / "site" / "index.html").exists()
    assert len(Store(store)) == 2
    assert files(new_runs) <= files(store)


def git(folder, *words):
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_keep_step_replaces_branch_and_keeps_files_of_others(runner, new_runs):
    remote, store = runner.folder / "remote.git", runner.folder / "store"
    git(runner.folder, "init", "-q", "--bare", str(remote))
    keep = {"LIMIT_MB": "1000", "REMOTE": str(remote)}
    new_runs.rename(store)
    assert runner(script("nightly", "Keep"), **keep).returncode == 0
    first = files(store) - {name for name in files(store) if name.startswith((".git", "tmp"))}
    assert set(git(remote, "ls-tree", "-r", "--name-only", "benchkit-store").split()) == first

    # The next night: a checkout, new files, and meanwhile a push of another job.
    for name in ("next", "other"):
        clone = ("clone", "-q", "--depth", "1", "-b", "benchkit-store", f"file://{remote}", name)
        git(runner.folder, *clone)
        (runner.folder / name / f"{name}.json").write_text("{}")
    git(runner.folder / "other", "add", "-A")
    git(runner.folder / "other", "-c", "user.name=o", "-c", "user.email=o", "commit", "-qm", "o")
    git(runner.folder / "other", "push", "-q")
    store.rename(runner.folder / "before")
    (runner.folder / "next").rename(store)
    done = runner(script("nightly", "Keep"), **keep)

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

    done = runner(script("nightly", "Keep"), LIMIT_MB="0", REMOTE=str(remote))

    assert done.returncode == 0, done.stderr
    kept = git(remote, "ls-tree", "-r", "--name-only", "benchkit-store").split()
    assert len([name for name in kept if name.endswith(".nc")]) == 1
    assert not [name for name in kept if name.startswith("trash")]


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

    done = runner(script("ab-comment", "Comment"), **COMMENT)

    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in (runner.folder / "calls").read_text().splitlines()]
    assert target in calls[-1]
    assert "body=@comment.md" in calls[-1]
    assert ("PATCH" in calls[-1]) == bool(known)
    assert (runner.folder / "comment.md").read_text() == (
        "<!-- benchkit:ab -->\n| faster |\n\n[The whole report](https://run)\n"
    )


def test_comment_step_skips_commit_that_is_not_the_head(runner):
    _stand_in_for_gh(runner, [{"number": 12, "head": {"sha": "newer"}}], "")

    done = runner(script("ab-comment", "Comment"), **COMMENT)

    assert done.returncode == 0, done.stderr
    assert "no open pull request of someone:fix/a b has the commit abc" in done.stdout
    assert len((runner.folder / "calls").read_text().splitlines()) == 1


COMMENT = {"GH_REPO": "dask/speed", "HEAD": "someone:fix/a b", "SHA": "abc", "RUN": "https://run"}


def _stand_in_for_gh(runner, pulls, known):
    (runner.folder / "bin").mkdir()
    (runner.folder / "bin" / "gh").write_text(GH.replace("{python}", sys.executable))
    (runner.folder / "bin" / "gh").chmod(0o755)
    (runner.folder / "pulls.json").write_text(json.dumps(pulls))
    (runner.folder / "known").write_text(known)
    (runner.folder / "out").mkdir()
    (runner.folder / "out" / "ab.md").write_text("| faster |\n")


def test_ab_measures_only_for_its_own_label():
    content = read(FOLDER / "ab.yml")
    condition = content["jobs"]["measure"]["if"]

    def measures(action, labels, label=""):
        text = condition.replace("contains(github.event.pull_request.labels.*.name", "has(labels")
        text = text.replace("github.event.action", "action").replace("&&", "and")
        text = text.replace("github.event.label.name", "label").replace("||", "or")
        scope = {"action": action, "label": label, "labels": labels, "has": operator.contains}
        return eval(" ".join(text.split()), scope)

    assert measures("labeled", ["benchmark"], "benchmark")
    assert not measures("labeled", ["benchmark", "docs"], "docs")
    assert measures("synchronize", ["benchmark", "docs"])
    assert not measures("synchronize", ["docs"])
    # The group of another label is another one: the running measurement is not cancelled.
    assert (
        "github.event.label.name != 'benchmark' && github.event.label.name"
        in (content["concurrency"]["group"])
    )


@pytest.mark.parametrize("has_venv", [False, True])
def test_ci_script_installs_packages_one_by_one_and_keeps_own_venv(tmp_path, has_venv):
    def command(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    tools = tmp_path / "bin"
    command(tools / "id", "echo 0")
    command(tools / "python3", "exit 1")  # no venv, as on a fresh Debian
    command(tools / "apt-get", 'echo "$@" >> apt; for last; do :; done; [ "$last" != chromium ]')
    checks = "ruff lint-imports mypy codespell actionlint"
    make = f"mkdir -p $1/bin; for t in {checks}; do ln -s {shutil.which('true')} $1/bin/$t; done"
    command(tools / "make-venv", f"{make}; echo $1 > made")
    for name in ("bash", "dirname", "env", "grep", "rm", "mkdir", "ln", "true", "sh"):
        (tools / name).symlink_to(shutil.which(name))
    command(tmp_path / ".ci" / "run", "")
    (tmp_path / ".ci" / "run").write_text((ROOT / ".ci" / "run").read_text())
    (tmp_path / "README.md").write_text("make-venv .venv && : python -m pytest\n")
    if has_venv:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "mine").touch()

    done = subprocess.run(
        [str(tmp_path / ".ci" / "run")], env={"PATH": str(tools)}, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert "could not install chromium" in done.stderr
    installed = [line.split()[-1] for line in (tmp_path / "apt").read_text().splitlines()[1:]]
    servers = "ceph-mon ceph-osd radosgw ceph-common openssh-server munge slurmctld slurmd"
    expected = f"chromium prometheus {servers} slurm-client python3-venv"
    assert installed == expected.split()
    assert (tmp_path / "made").read_text() == (".ci/venv\n" if has_venv else ".venv\n")
    assert (tmp_path / ".venv" / "mine").exists() == has_venv
