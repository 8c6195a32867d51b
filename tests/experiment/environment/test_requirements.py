"""Requirement lines: parsing, dates of old releases, states of sources, hidden secrets."""

import subprocess
from datetime import date
from pathlib import Path

import pytest

from benchkit.errors import EnvironmentBuildError
from benchkit.experiment.environment.requirements import (
    as_of,
    parse_requirement,
    redacted,
    source_states,
)


def requirements(*lines):
    return [parse_requirement(line, Path()) for line in lines]


@pytest.mark.parametrize(
    ("lines", "own", "day"),
    [
        (["dask==2023.4.1"], "2026.8.0", date(2023, 5, 15)),
        (["dask[array]==2023.4.1", "distributed==2023.5.0"], "2026.8.0", date(2023, 5, 15)),
        (["distributed==2023.12.0", "numpy<2"], "2026.8.0", date(2024, 1, 15)),
        (["dask==2026.7.1"], "2026.8.0", None),
        (["dask==2023.4.1"], "2023.6.0", None),
        (["dask", "numpy==1.26.4"], "2026.8.0", None),
        (["dask @ git+https://github.com/dask/dask@main"], "2026.8.0", None),
    ],
)
def test_as_of_uses_the_month_of_an_old_release(lines, own, day):
    assert as_of(requirements(*lines), {"dask": own}) == day


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("https://me:pw@host/simple failed", "https://***@host/simple failed"),
        ("git+https://tok123@github.com/x/y@main", "git+https://***@github.com/x/y@main"),
        ("git+ssh://git@github.com/x/y", "git+ssh://git@github.com/x/y"),
        ("https://host/simple?token=abc&x=1", "https://host/simple?token=***&x=1"),
    ],
)
def test_redacted_hides_secrets_of_addresses(text, safe):
    assert redacted(text) == safe


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("dask[array]==2026.8.0 ; python_version > '3'", "index", "dask"),
        ("git+https://github.com/dask/distributed.git@feature/x", "git", "distributed"),
        ("git+https://me:pw@github.com/dask/dask", "git", "dask"),
        ("dask @ git+https://github.com/dask/dask@main  # the tip", "git", "dask"),
        ("https://host/toolz-1.0-py3-none-any.whl", "url", ""),
    ],
)
def test_parse_requirement_kinds(line, kind, name):
    (found,) = requirements(line)

    assert (found.kind, found.name) == (kind, name)


def test_source_states_detect_changes(source):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", str(source), *identity, *arguments], check=True)

    branch = requirements(f"git+{source.as_uri()}@topic")
    local = requirements(str(source))
    git("init", "-q", "-b", "topic")
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    first = source_states(branch), source_states(local)
    assert (source_states(branch), source_states(local)) == first

    (source / "toy_thing" / "__init__.py").write_text("VALUE = 5\n")
    assert source_states(branch) == first[0]
    changed = source_states(local)
    assert changed != first[1]

    git("commit", "-q", "-a", "-m", "two")
    assert source_states(branch) != first[0]
    # The version of a source can depend on its commits.
    assert source_states(local) != changed


def test_source_states_error_hides_password():
    with pytest.raises(EnvironmentBuildError) as caught:
        source_states(requirements("git+https://me:hunter2@localhost:1/x/y"))

    assert "https://***@localhost:1/x/y" in str(caught.value)
    assert "hunter2" not in str(caught.value)
