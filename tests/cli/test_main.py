"""Errors that no command handles: one line, and never exit code 1, which means "worse"."""

import click
import pytest
from click.testing import CliRunner

from benchkit.cli.main import _ErrorReportingGroup
from benchkit.cli.main import benchkit as benchkit_command
from benchkit.errors import BenchkitError, UsageError


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (OSError(28, "No space left on device", "/x/y.json"), 3, "/x/y.json: not accessible: No"),
        (TimeoutError("timed out"), 3, "error: timed out"),
        (UsageError("no such thing"), 2, "error: no such thing"),
        (BenchkitError("https://me:pw12@host is down"), 3, "https://***@host is down"),
        (KeyboardInterrupt(), 130, "interrupted: what was finished is kept"),
    ],
)
def test_error_is_one_line_with_documented_code(error, code, text):
    @click.group(cls=_ErrorReportingGroup)
    def group():
        """Commands."""

    @group.command()
    def fails():
        raise error

    done = CliRunner().invoke(group, ["fails"])

    assert done.exit_code == code
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_unexpected_error_is_no_verdict():
    @click.group(cls=_ErrorReportingGroup)
    def group():
        """Commands."""

    @group.command()
    def fails():
        raise ZeroDivisionError("token=abc123def")

    done = CliRunner().invoke(group, ["fails"])

    assert done.exit_code == 3
    assert done.stderr.startswith("error: unexpected error, please report it")
    assert "ZeroDivisionError" in done.stderr
    assert "abc123def" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--stor x", "No such option '--stor' (see `benchkit --help`)"),
        ("ab a --swep x=1", "--sweep'?) (see `benchkit ab --help`)"),
        ("env import", "error: Missing argument 'FOLDER' (see `benchkit env import --help`)"),
        ("env import none", "Directory 'none' does not exist (see `benchkit env import --help`)"),
        ("run -n 0", "'-n': 0 is not in the range x>=1 (see `benchkit run --help`)"),
        ("mark accept x", "'--reason' / '-m' (see `benchkit mark accept --help`)"),
        ("env build", "error: Missing argument 'NAMES...' (see `benchkit env build --help`)"),
        ("run -e a -e b", "takes one value; `benchkit ab` measures several environments (see"),
        ("run --address tcp://h:1", "`cluster: {address: 'tcp://HOST:8786'}`, or the path of a"),
        ("ab a b --scheduler-file f", "No such option '--scheduler-file'; a running cluster is"),
        ("dashboard --addres h", "'--addres'. Did you mean '--address'? (see `benchkit dash"),
    ],
)
def test_wrong_argument_is_one_line_that_names_the_help(arguments, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(benchkit_command, arguments.split(), prog_name="benchkit")

    assert done.exit_code == 2
    assert done.stdout == ""
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def commands(command=benchkit_command, *words):
    """Yield the words and the object of each command."""
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from commands(command.commands[name], *words, name)
    else:
        yield words, command


def test_option_of_one_value_that_is_given_twice_is_refused_by_every_command():
    n_options = 0
    for words, command in commands():
        for option in command.params:
            if not isinstance(option, click.Option) or option.multiple or option.is_flag:
                continue
            for name in {option.opts[0], option.opts[-1]}:
                twice = [*words, name, "1", option.opts[-1], "2"]
                done = CliRunner().invoke(benchkit_command, twice, prog_name="benchkit")

                text = f"error: Option '{option.opts[-1]}' is given 2 times, but takes one value"
                assert (done.exit_code, done.stderr.count("\n")) == (2, 1), twice
                assert done.stderr.startswith(text), twice
                n_options += 1
    assert n_options > 100


@pytest.mark.parametrize("arguments", [[], ["env"]])
def test_group_without_command_prints_its_help(arguments):
    done = CliRunner().invoke(benchkit_command, arguments, prog_name="benchkit")

    assert "Commands:" in done.output
    assert "error:" not in done.output
