"""Options and exit codes that commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from benchkit.errors import UsageError

if TYPE_CHECKING:
    from benchkit.experiment.run.api import Selection

#: Exit codes: something is worse; a run or a part failed; too few runs, or ends that do not differ.
WORSE, FAILED, TOO_FEW = 1, 3, 4
#: Key of the suites of tests among the data of a command.
_SUITES = "benchkit.suites"
#: Options of the commands that measure.
_MEASUREMENT = "scale capture prometheus store workloads pytest environments tag quiet json".split()


def _check_capture(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the value if it is a level of capture, with or without extra files."""
    from benchkit.measure.artifacts import parse_capture

    parse_capture(value)
    return value


def _check_size(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the value if it is a size in bytes."""
    from dask.utils import parse_bytes

    try:
        if parse_bytes(value) > 0:
            return value
    except ValueError:
        pass
    raise UsageError(f"{parameter.opts[0]} {value!r}: not a size such as 500MB or 4GiB")


def _complete_capture(context: Any, parameter: Any, incomplete: str) -> list[CompletionItem]:
    """Complete levels, and extras after a plus."""
    from benchkit.measure.artifacts import EXTRAS, LEVELS

    head, plus, last = incomplete.rpartition("+")
    choices = EXTRAS if plus else LEVELS
    return [CompletionItem(head + plus + word) for word in choices if word.startswith(last)]


def complete_names(*kinds: str) -> Callable[..., list[str]]:
    """Return ``shell_complete`` of an argument that names environments, workloads, or both."""

    def complete(ctx: Any, param: Any, incomplete: str) -> list[str]:
        from benchkit.experiment.paths import defined_names

        return [name for name in defined_names(*kinds) if name.startswith(incomplete)]

    return complete


def read_pairs(
    context: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> dict[str, Any]:
    """Return the texts of a repeated option ``NAME=VALUE`` as a dictionary: a callback of click."""
    option = parameter.opts[-1]
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {text!r}: must be NAME=VALUE")
        if name in values:
            raise UsageError(f"{option} {text!r}: {name} is given twice")
        values[name] = yaml_value(value) if option in ("--set", "--group") else value
    return values


def read_numbers(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> list[int] | None:
    """Return the whole numbers of a text such as ``4,8,16``: a callback of click."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{parameter.opts[-1]} {text!r}: must be numbers with commas, such as 10,100"
        ) from None


def yaml_value(text: str) -> Any:
    """Return the value of a text in YAML."""
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _set_variable(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Set the environment variable of an option for the measuring processes."""
    name = str(parameter.envvar)
    previous = os.environ.get(name)
    if not value:
        return
    from benchkit.measure.prometheus import VARIABLE, Prometheus

    chosen = str(value).strip()
    Prometheus(**{"url" if name == VARIABLE else "match": chosen})
    os.environ[name] = chosen

    def restore() -> None:
        os.environ.pop(name, None)
        os.environ.update({name: previous} if previous is not None else {})

    context.call_on_close(restore)


def _keep_suites(context: click.Context, parameter: click.Parameter, paths: Any) -> None:
    """Keep the suites of tests for `_with_suites`, which is called later."""
    if paths:
        from benchkit.measure.suite.collect import PREFIX, absolute_folder

        context.meta[_SUITES] = tuple(absolute_folder(PREFIX + path) for path in paths)


def _with_suites(context: click.Context, parameter: click.Parameter, folders: Any) -> Any:
    """Return the folders of workloads and the suites of tests."""
    return (*folders, *context.meta.get(_SUITES, ()))


def _parse_virtual(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Return the virtual cluster that the option describes."""
    if value is None:
        return None
    from benchkit.experiment.virtual.process import parse_shape

    return parse_shape(value)


#: Options that several commands have.
_COMMON: dict[str, Sequence[Callable[..., Any]]] = {
    "store": [click.option(
        "--store", metavar="FOLDER|URL",
        help="Store of runs, or s3://bucket/prefix, gs://..., az://...; default "
        "$BENCHKIT_STORE, ./benchkit-store.")],
    "limits": [
        click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True),
                     default=120.0, show_default=True, metavar="SECONDS",
                     help="Stop a query after this time."),
        click.option("--memory-limit", default="2GiB", show_default=True, metavar="SIZE",
                     callback=_check_size, help="Memory that a query may use.")],
    "workloads": [click.option(
        "--workloads", "folders", multiple=True, metavar="DIR", callback=_with_suites,
        help="Folder of workloads; default ./workloads and shipped ones.")],
    "pytest": [click.option(
        "--pytest", "suites", multiple=True, metavar="PATH", is_eager=True,
        expose_value=False, callback=_keep_suites,
        help="Measure the tests of pytest in this folder or file as workloads.")],
    "environment": [click.option(
        "-e", "environment", default="current", show_default=True, metavar="ENV",
        help="Environment to use.", shell_complete=complete_names("environments"))],
    "environments": [click.option(
        "--environments", "environment_folders", multiple=True, metavar="DIR",
        help="Folder of environments; default ./environments and shipped ones.")],
    "select": [click.option(
        "-k", "expression", metavar="EXPR",
        help="Select by name, category:, tag: or profile:, with and/or/not, as in pytest.")],
    "tag": [click.option(
        "--tag", "tags", multiple=True, metavar="K=V", callback=read_pairs,
        help="Tag of the runs.")],
    "scale": [click.option(
        "--scale", default=1.0, show_default=True, type=click.FloatRange(0, 1, min_open=True),
        help="Share of the full size of the data.")],
    "set": [click.option(
        "--set", "params", multiple=True, metavar="P=V", callback=read_pairs,
        help="Set a workload's parameter.")],
    "capture": [click.option(
        "--capture", default="full", show_default=True, metavar="LEVEL[+EXTRA]",
        callback=_check_capture, shell_complete=_complete_capture,
        help="Detail of the capture: full, light or off; extra files stored with the run: "
        "performance-report, cluster-dump, memray.")],
    "prometheus": [
        click.option(
            "--prometheus", envvar="BENCHKIT_PROMETHEUS", metavar="URL",
            expose_value=False, callback=_set_variable,
            help="Store the series of this Prometheus server with each run; default "
            "$BENCHKIT_PROMETHEUS."),
        click.option(
            "--prometheus-match", envvar="BENCHKIT_PROMETHEUS_MATCH", metavar="SELECTOR",
            expose_value=False, callback=_set_variable,
            help="Selector of the cluster's series; default: by its HTTP addresses."),
    ],
    "virtual": [click.option(
        "--virtual", metavar="SHAPE", callback=_parse_virtual,
        help="Simulate on a virtual cluster: workers=1000,threads=2,memory=4GiB; also constants "
        "of the model, such as bandwidth=1e9.")],
    "quiet": [click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")],
    "json": [click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")],
}  # fmt: skip


def common(*names: str) -> Callable[..., Any]:
    """Return a decorator that adds shared options to a command."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        option_names = [*names, *(["environments"] if "environment" in names else [])]
        for name in reversed(dict.fromkeys(option_names)):
            for option in reversed(_COMMON[name]):
                function = option(function)
        return function

    return decorate


@dataclass(frozen=True)
class MeasurementOptions:
    """Values of the shared options of a command that measures."""

    scale: float  # scale, capture, tags: How to measure
    capture: str
    tags: dict[str, str]
    store: str | None  # Store of the runs
    # folders, environment_folders: Folders of workloads and of environments.
    folders: tuple[str, ...]
    environment_folders: tuple[str, ...]
    quiet: bool  # quiet, as_json: What to print
    as_json: bool
    # expression, params, virtual, environment: What to measure, for commands with these options.
    expression: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    virtual: Any = None
    environment: str = ""

    @property
    def how(self) -> dict[str, Any]:
        """Arguments of the functions that plan: store, scale, capture and tags."""
        return {name: getattr(self, name) for name in ("store", "scale", "capture", "tags")}

    def selection(
        self, names: Sequence[str], environments: Sequence[str], **more: Any
    ) -> Selection:
        """Return workloads in environments."""
        from benchkit.experiment.run.api import Selection

        return Selection(
            names,
            select=self.expression,
            folders=self.folders,
            params=self.params,
            environments=environments,
            environment_folders=self.environment_folders,
            **more,
        )


def measuring(*names: str) -> Callable[..., Any]:
    """Return a decorator that adds the options of a command that measures, as one argument."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(**arguments: Any) -> Any:
            shared = [item.name for item in fields(MeasurementOptions) if item.name in arguments]
            options = MeasurementOptions(**{name: arguments.pop(name) for name in shared})
            return function(**arguments, options=options)

        return common(*names, *_MEASUREMENT)(command)

    return decorate
