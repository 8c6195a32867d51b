"""The workflow files: valid, with few permissions, and with commands that exist."""

import json
import operator
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from helpers.workflow_steps import FILES, FOLDER, ROOT, read, steps

from benchkit.cli.main import benchkit as main

COMMAND = re.compile(r"\.venv/bin/benchkit (.*?)(?: \|\| .*)?$", re.MULTILINE)

#: Action, commit and version of a step.
USES = re.compile(r"uses: ([\w/.-]+)@(\S+)(?:  # (.*))?$", re.MULTILINE)


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


def test_actions_are_pinned_to_one_commit_each():
    scaffold = ROOT / "benchkit" / "experiment" / "project"
    used = [
        (action.split("/")[0:2], commit, version)
        for path in [*FILES, *scaffold.rglob("*.yml")]
        for action, commit, version in USES.findall(path.read_text())
    ]

    assert len(used) > 30
    known = {}
    for action, commit, version in used:
        assert re.fullmatch("[0-9a-f]{40}", commit), action
        assert re.fullmatch(r"v\d+\.\d+\.\d+", version), action
        assert known.setdefault("/".join(action), (commit, version)) == (commit, version)


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
    for text in [
        *scripts,
        *((ROOT / ".ci" / name).read_text() for name in ("run", "python", "bare")),
    ]:
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        assert done.stderr == "", text


def test_tests_run_with_each_python_of_the_classifiers():
    named = re.findall(r'"Programming Language :: Python :: ([\d.]+)"', read_project())
    pythons = read(FOLDER / "tests.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert named == ["3", *pythons]
    assert f'requires-python = ">={pythons[0]}"' in read_project()


def read_project():
    return (ROOT / "pyproject.toml").read_text()


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


def test_no_address_contains_a_token():
    for path in FILES:
        assert not re.search(r"//[^/\s]*\$\{\{[^}]*(token|secrets)", path.read_text())


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
    others = "slurm-client nginx-light iproute2 util-linux python3-venv"
    expected = f"chromium prometheus {servers} {others}"
    assert installed == expected.split()
    assert (tmp_path / "made").read_text() == (".ci/venv\n" if has_venv else ".venv\n")
    assert (tmp_path / ".venv" / "mine").exists() == has_venv
