"""The command `benchkit`: add the subcommands and print each error in one line."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections import Counter
from typing import NoReturn

import click

from benchkit.cli.ab import ab
from benchkit.cli.agents.mcp import mcp_command
from benchkit.cli.bisect import bisect
from benchkit.cli.compare import compare_command
from benchkit.cli.dashboard import dashboard
from benchkit.cli.data import data
from benchkit.cli.doctor import doctor
from benchkit.cli.env import env
from benchkit.cli.insight.diagnose import diagnose_command
from benchkit.cli.insight.predict import simulate, whatif
from benchkit.cli.insight.query import query_command
from benchkit.cli.list import list_command
from benchkit.cli.mark import mark
from benchkit.cli.nightly import nightly_command
from benchkit.cli.project import init, notebooks
from benchkit.cli.regressions import regressions
from benchkit.cli.report import report
from benchkit.cli.rows import print_error
from benchkit.cli.run import run
from benchkit.cli.store import store_group
from benchkit.errors import BenchkitError, describe_error
from benchkit.interruption import interrupt_at_signals, interrupted_code

#: Names of options with which other programs take a running cluster.
_CLUSTER_OPTIONS = ("--address", "--cluster", "--scheduler", "--scheduler-file")
_RUNNING_CLUSTER = (
    "a running cluster is an environment: a file environments/NAME.yaml with the line "
    "`cluster: {address: 'tcp://HOST:8786'}`, or the path of a scheduler file"
)


class _ErrorReportingGroup(click.Group):
    """A group that prints an error as one line on stderr and exits with its exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _exit_with_usage_error(error, ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, words = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            _refuse_repeated_options(click.Context(command, ctx, name), words)
        return name, command, words

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _exit_with_usage_error(error, ctx)
        except BenchkitError as error:
            print_error(str(error))
            ctx.exit(error.exit_code)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                # The reader of stdout (`head`) has exited: flushing at exit would raise again.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                ctx.exit(0)
            print_error(describe_error(error))
            ctx.exit(BenchkitError.exit_code)
        except KeyboardInterrupt:
            click.echo("interrupted: what was finished is kept", err=True)
            ctx.exit(interrupted_code())
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except Exception:  # 1 would mean that something is worse
            print_error(f"unexpected error, please report it\n{traceback.format_exc()}")
            ctx.exit(BenchkitError.exit_code)


def _refuse_repeated_options(ctx: click.Context, words: list[str]) -> None:
    """Raise if an option of one value is given twice: click silently uses the last value."""
    command = ctx.command
    if isinstance(command, click.Group):
        inner = command.get_command(ctx, words[0]) if words else None
        if inner is not None:
            _refuse_repeated_options(click.Context(inner, ctx, words[0]), words[1:])
        return
    try:
        _, _, given = command.make_parser(ctx).parse_args(list(words))
    except click.UsageError:
        return  # click raises it again, when it parses the words for the command
    for option, count in Counter(given).items():
        takes_several = not isinstance(option, click.Option) or option.multiple or option.is_flag
        if count > 1 and not takes_several:
            text = f"Option '{option.opts[-1]}' is given {count} times, but takes one value"
            if (command.name, option.name) == ("run", "environment"):
                text += "; `benchkit ab` measures several environments"
            raise click.UsageError(text, ctx)


def _exit_with_usage_error(error: click.UsageError, ctx: click.Context) -> NoReturn:
    """Print the message of click as one line that names the command; without words, print help."""
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help; click 8.2 has it
        raise error
    command = error.ctx.command_path if error.ctx else ctx.command_path
    message = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.NoSuchOption) and error.option_name in _CLUSTER_OPTIONS:
        # not with the option of a similar name that click proposes
        message = f"No such option '{error.option_name}'; {_RUNNING_CLUSTER}"
    print_error(f"{message} (see `{command} --help`)")
    ctx.exit(error.exit_code)


@click.group(cls=_ErrorReportingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dask-benchkit", prog_name="benchkit")
def benchkit() -> None:
    """Measure Dask workloads, store the runs, and analyse them.

    \b
    Example:
      benchkit run -k profile:quick
    """


def main() -> None:
    """Run the command line."""
    interrupt_at_signals()
    for stream in (sys.stdout, sys.stderr):
        # Into a pipe, Windows writes in a code page without the arrows of verdicts.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    benchkit(prog_name="benchkit")


for command in (
    init,
    list_command,
    run,
    ab,
    compare_command,
    bisect,
    simulate,
    nightly_command,
    regressions,
    mark,
    mcp_command,
    report,
    dashboard,
    query_command,
    store_group,
    diagnose_command,
    whatif,
    data,
    env,
    notebooks,
    doctor,
):
    benchkit.add_command(command)
