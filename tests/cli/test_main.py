"""Errors that no command handles: one line, and never exit code 1, which means "worse"."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from benchkit.cli.main import _ErrorReportingGroup
from benchkit.errors import BenchkitError, UsageError


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (OSError(28, "No space left on device", "/x/y.json"), 3, "/x/y.json: not accessible: No"),
        (TimeoutError("timed out"), 3, "error: timed out"),
        (UsageError("no such thing"), 2, "error: no such thing"),
        (BenchkitError("https://me:pw12@host is down"), 3, "https://***@host is down"),
        (KeyboardInterrupt(), 130, "interrupted: finished runs are stored"),
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
