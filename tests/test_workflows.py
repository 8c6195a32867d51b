"""The workflow files: valid, with few permissions, and with commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from benchkit.cli.main import benchkit as main

FOLDER = Path(__file__).parent.parent / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))


def read(path):
    # YAML 1.1 reads the key `on` as true.
    return {("on" if k is True else k): v for k, v in yaml.safe_load(path.read_text()).items()}


def steps(path):
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def test_workflows_exist_for_all_tasks():
    assert {path.stem for path in FILES} == {"tests", "nightly", "ab", "ab-comment"}


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


def test_comment_workflow_runs_no_code_of_pull_request():
    for step in steps(FOLDER / "ab-comment.yml"):
        assert "checkout" not in step.get("uses", "")
        assert not re.search(r"benchkit (?!ab)|python|pip", step.get("run", ""))
    (job,) = read(FOLDER / "ab.yml")["jobs"].values()
    assert "permissions" not in job
    assert "secrets." not in (FOLDER / "ab.yml").read_text()
    for step in job["steps"]:
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def commands():
    for path in FILES:
        for step in steps(path):
            for line in step.get("run", "").splitlines():
                found = re.match(r"\s*\.venv/bin/benchkit (.*)", line)
                if found:
                    yield pytest.param(shlex.split(found[1]), id=f"{path.stem}: {found[1][:40]}")


@pytest.mark.parametrize("words", list(commands()))
def test_workflow_commands_are_valid(words):
    command, context = main, click.Context(main)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
        assert command is not None
    command.make_context(command.name, words)  # parses the options and runs nothing


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
