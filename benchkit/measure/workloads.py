"""Workloads and their variants.

A `Workload` is a realistic Dask job with a check of its answer; the decorator `workload`
makes one from a function. A `Variant` is a workload with bound parameters: the unit of table rows,
time series and issues. This module starts no clusters and runs no workloads.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

from benchkit.measure.arguments import own_metric
from benchkit.measure.errors import (
    InvalidParameterError,
    InvalidWorkloadError,
    UsageError,
    did_you_mean,
)
from benchkit.measure.expression import consists_of
from benchkit.measure.html_table import html_table
from benchkit.measure.source import (
    constants_of,
    first_name,
    names_used,
    normalized_source,
    source_of,
)  # fmt: skip

#: The steps of a workload; only `run` is timed.
STEPS = ("prepare", "run", "check", "cleanup")
_GENERATORS = "benchkit.measure.data.random"
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
#: Arguments of a step in addition to the workload's parameters.
_ARGUMENTS = ("client", "scale", "prepared", "result", "seed")


@dataclass(eq=False)
class Workload:
    """A declared workload; use the decorator `benchkit.measure.workload` to declare it.

    Parameters
    ----------
    main : callable
        The timed step.
    category, short_name : str
        The two parts of the name.
    parameters : dict of str to list
        Values of each parameter.
    tags, requires, max_threads, features, cluster, deadline_s, version, metrics, seed, owner
        See `benchkit.measure.workload`.
    """

    main: Callable[..., Any]
    category: str
    short_name: str
    parameters: dict[str, list[Any]] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    max_threads: int | None = None
    features: tuple[str, ...] = ()
    cluster: str | Mapping[str, Any] | None = None
    deadline_s: float | None = None
    version: int = 1
    metrics: dict[str, str | tuple[str, str]] = field(default_factory=dict)
    seed: int = 0
    owner: str = ""

    def __post_init__(self) -> None:
        self.steps: dict[str, Callable[..., Any]] = {}
        for part in (self.category, self.short_name):
            if not _NAME.match(part):
                raise InvalidWorkloadError(
                    f"{self._place(self.main)}: {part!r} is not a valid name for a workload: "
                    "use a-z, 0-9 and _, a letter first"
                )
        for key, values in self.parameters.items():
            if not values:
                raise InvalidWorkloadError(
                    f"{self._place(self.main)}: parameter {key!r} has no values"
                )
        self._set_step("run", self.main)

    # -- steps --------------------------------------------------------------------------------

    def prepare(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate the step before the clock starts, which makes the input.

        Parameters
        ----------
        function : callable
            Its result is the argument `prepared` of the later steps.

        Returns
        -------
        callable
            The same function.
        """
        return self._set_step("prepare", function)

    def check(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate the step after the clock has stopped, which checks the answer.

        Parameters
        ----------
        function : callable
            Compares `result` with the known answer; may return values of extra metrics by name.

        Returns
        -------
        callable
            The same function.
        """
        return self._set_step("check", function)

    def cleanup(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate the last step, which also runs after errors.

        Parameters
        ----------
        function : callable
            Releases resources.

        Returns
        -------
        callable
            The same function.
        """
        return self._set_step("cleanup", function)

    def _set_step(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if step in self.steps:
            raise InvalidWorkloadError(
                f"{self._place(function)}: {self.name} has a {step} step already"
            )
        for parameter in inspect.signature(function).parameters.values():
            known = [*_ARGUMENTS, *self.parameters]
            if parameter.default is not parameter.empty:
                continue
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if parameter.name not in known:
                hint = did_you_mean(parameter.name, known, f"there are {', '.join(known)}")
                raise InvalidWorkloadError(
                    f"{self._place(function)}: the {step} step of {self.name} has an "
                    f"unknown argument {parameter.name!r}: {hint}"
                )
        self.steps[step] = function
        return function

    def call(self, step: str, **available: Any) -> Any:
        """Call a step with the arguments of its signature.

        Parameters
        ----------
        step : str
            One of `STEPS`.
        **available
            Arguments by name; the step gets those in its signature.

        Returns
        -------
        Any
            Result of the step; None if the workload does not have it.
        """
        function = self.steps.get(step)
        if function is None:
            return None
        parameters = inspect.signature(function).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return function(**available)
        return function(**{name: available[name] for name in parameters if name in available})

    # -- identity -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Category and name: ``array.basic_sum``."""
        return f"{self.category}.{self.short_name}"

    @property
    def description(self) -> str:
        """The docstring."""
        return inspect.cleandoc(self.main.__doc__ or "")

    @property
    def path(self) -> str:
        """Path of the file that declares the workload."""
        return self.main.__code__.co_filename if hasattr(self.main, "__code__") else ""

    @property
    def line(self) -> int:
        """Line of the declaration in its file."""
        return self.main.__code__.co_firstlineno if hasattr(self.main, "__code__") else 0

    def _place(self, function: Callable[..., Any]) -> str:
        code = getattr(function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)

    @property
    def source(self) -> str:
        """Source of all steps and of the helper functions that they use."""
        return "\n\n".join(
            text for text in (source_of(function) for function in self._functions()) if text
        )

    @property
    def source_hash(self) -> str:
        """Hash of the source without comments, docstrings and layout."""
        digest = hashlib.sha256()
        for function in self._functions():
            digest.update(normalized_source(function).encode())
            digest.update(constants_of(function).encode())
        digest.update(repr(self.requires + self.features).encode())
        return digest.hexdigest()[:16]

    def _functions(self) -> list[Callable[..., Any]]:
        """Return the steps, then the helper functions that they use, recursively."""
        functions = [self.steps[step] for step in STEPS if step in self.steps]
        for function in functions:  # grows during the iteration
            for name in sorted(names_used(function), key=first_name):
                helper = getattr(function, "__globals__", {}).get(name)
                if (
                    isinstance(helper, (FunctionType, type))
                    and self._is_own(helper.__module__)
                    and helper not in functions
                ):
                    functions.append(helper)
        return functions

    def _is_own(self, module: str) -> bool:
        """Return whether functions of a module are part of the source hash.

        These are its file, helper files next to it (``_name.py``), and `measure.data.random`.
        """
        if module in (self.main.__module__, _GENERATORS):
            return True
        file = getattr(sys.modules.get(module), "__file__", None)
        is_neighbour = file is not None and Path(file).parent == Path(self.path).resolve().parent
        return is_neighbour and module.rpartition(".")[2].startswith("_")

    # -- variants -----------------------------------------------------------------------------

    def variants(self) -> list[Variant]:
        """Return all combinations of parameter values.

        Returns
        -------
        list of Variant
            The last parameter varies fastest.
        """
        combinations = itertools.product(*self.parameters.values())
        return [
            Variant(self, dict(zip(self.parameters, values, strict=True)))
            for values in combinations
        ]

    def bind(self, **params: Any) -> Variant:
        """Return the variant with the given values.

        Parameters
        ----------
        **params
            Values, also undeclared ones; other parameters take their first value. A list, as JSON
            and YAML have it, becomes a tuple where the declared values are tuples.

        Returns
        -------
        Variant
            It need not be among `variants`.

        Raises
        ------
        InvalidParameterError
            The workload has no such parameter.
        """
        for name in params:
            if name not in self.parameters:
                known = list(self.parameters)
                hint = did_you_mean(name, known, f"it has {', '.join(known) or 'none'}")
                raise InvalidParameterError(f"{self.name} has no parameter {name!r}: {hint}")
            if isinstance(self.parameters[name][0], tuple):
                params[name] = _with_tuples(params[name])
        first = {name: values[0] for name, values in self.parameters.items()}
        return Variant(self, {**first, **params})

    def __repr__(self) -> str:
        return f"<Workload {self.name}: {len(self.variants())} variants>"

    def _repr_html_(self) -> str:
        texts = {
            "description": self.description.partition("\n")[0],
            "variants": ", ".join(variant.name for variant in self.variants()),
            "tags": ", ".join(self.tags),
            "requires": ", ".join(self.requires),
            "owner": self.owner,
            "file": f"{self.path}:{self.line}",
        }
        return html_table(self.name, texts.items())


@dataclass(frozen=True, eq=False)
class Variant:
    """A workload with its parameters bound.

    Parameters
    ----------
    workload : Workload
        The workload.
    params : mapping of str to Any
        Value of each parameter.
    """

    workload: Workload
    params: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Full name: ``array.basic_sum[chunks=thin]``."""
        if not self.params:
            return self.workload.name
        inside = ",".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.workload.name}[{inside}]"

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the workload that apply to this variant.

        A tag ``quick[kind=thin]`` of the workload is ``quick`` for variants of that kind.
        """
        parts = [tag.partition("[") for tag in self.workload.tags]
        return tuple(name for name, _, inside in parts if self.has_values(inside.removesuffix("]")))

    def has_values(self, text: str) -> bool:
        """Return whether the variant has the parameter values that a text names.

        Parameters
        ----------
        text : str
            The part between the brackets of a name, in any order, possibly incomplete. Values may
            contain commas and brackets: ``chunks=(100, 100),axis=0``.

        Returns
        -------
        bool
            True also for an empty text.
        """
        return consists_of(text, [f"{key}={value}" for key, value in self.params.items()])

    def undeclared_params(self) -> dict[str, Any]:
        """Return the parameters to bind in another process, tuples as lists.

        Returns
        -------
        dict of str to Any
            Empty for a declared variant, which is found by its name.
        """
        is_declared = any(self.name == other.name for other in self.workload.variants())
        return {} if is_declared else json.loads(json.dumps(dict(self.params)))

    def missing_packages(self) -> list[str]:
        """Return the required modules that cannot be imported here.

        Returns
        -------
        list of str
            Names from `Workload.requires`.
        """
        return [name for name in self.workload.requires if not _is_importable(name)]

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and other.name == self.name

    def __repr__(self) -> str:
        return f"<Variant {self.name}>"


def _with_tuples(value: Any) -> Any:
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _is_importable(name: str) -> bool:
    if name in sys.modules:  # a module that replaced itself in sys.modules may have no spec
        return sys.modules[name] is not None
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


#: Groups of a run file; a metric must not have the name of a group.
RESERVED_NAMES = {
    "client", "errors", "events", "fine", "held", "logs", "memory_samples", "profile", "scheduler",
    "scheduler_profile", "spans", "submissions", "task_events", "task_groups", "tasks",
    "thread_times", "transfers", "workers",
}  # fmt: skip


def workload(
    function: Callable[..., Any] | None = None,
    /,
    *,
    category: str | None = None,
    name: str | None = None,
    variants: Mapping[str, Sequence[Any]] | None = None,
    tags: Iterable[str] = (),
    requires: Iterable[str] = (),
    max_threads: int | None = None,
    features: Iterable[str] = (),
    cluster: str | Mapping[str, Any] | None = None,
    deadline_s: float | None = None,
    version: int = 1,
    metrics: Mapping[str, str | tuple[str, str]] | None = None,
    seed: int = 0,
    owner: str = "",
) -> Any:
    """Declare that a function is a workload.

    The function is the timed step. Its arguments are passed by name: any of ``client``, ``scale``,
    ``prepared`` (result of the prepare step) and ``seed``, and its parameters as keywords. The run
    ends when the collections and futures that it returns are finished.

    Parameters
    ----------
    function : callable, optional
        The timed step; absent if the decorator has arguments.
    category : str, optional
        First part of the name; by default the name of the file.
    name : str, optional
        Second part of the name; by default the function's.
    variants : mapping of str to sequence, optional
        Values of each parameter; every combination is a variant.
    tags : iterable of str
        Words for selection; ``profile:quick`` adds the workload to the profile `quick`, and
        ``quick[kind=thin]`` tags only the variants of that kind.
    requires : iterable of str
        Modules that must be importable; the workload is skipped if one is missing.
    max_threads : int, optional
        Largest number of threads for which its fixed data are enough.
    features : iterable of {"adaptive", "scale", "nanny"}
        Required abilities of the cluster.
    cluster : str or mapping, optional
        A named shape of the environment, or options that replace those of its cluster.
    deadline_s : float, optional
        Limit of each step in s.
    version : int, default 1
        Increase it when the meaning changes: this starts a new history.
    metrics : mapping of str to str or tuple, optional
        Names and units of metrics that the check step returns; with a direction as
        ``{"rows_per_s": ("1/s", "more")}``.
    seed : int, default 0
        Passed to the steps and recorded.
    owner : str, optional
        Person or team that should look at a regression, such as ``@dask/array``; recorded.

    Returns
    -------
    Workload or decorator
        The workload; with arguments only, a decorator that returns it.

    Raises
    ------
    InvalidWorkloadError
        The declaration is invalid.

    Examples
    --------
    >>> from benchkit.measure import expect
    >>> @workload(category="array", variants={"chunks": ["thin", "square"]})
    ... def total(client, scale, *, chunks):
    ...     "Sum of an array. Check: it is 3."
    ...     return 3
    >>> @total.check
    ... def _(result, scale, *, chunks):
    ...     expect(result, equals=3)
    >>> [variant.name for variant in total.variants()]
    ['array.total[chunks=thin]', 'array.total[chunks=square]']
    """
    reserved = RESERVED_NAMES & set(metrics or ())
    if reserved:
        raise InvalidWorkloadError(
            f"metrics: {', '.join(sorted(reserved))} is a group of every run file: rename it"
        )
    for key, about in (metrics or {}).items():
        if not isinstance(about, str):
            try:
                own_metric(key, 0.0, *about)
            except (TypeError, UsageError) as error:
                text = f'metrics: {key}={about!r}: give a unit, or ("1/s", "more"): {error}'
                raise InvalidWorkloadError(text) from error

    def declare(main: Callable[..., Any]) -> Workload:
        return Workload(
            main=main,
            category=category or main.__module__.rpartition(".")[2].strip("_"),
            short_name=name or main.__name__,
            parameters={key: list(values) for key, values in (variants or {}).items()},
            tags=tuple(tags),
            requires=tuple(requires),
            max_threads=max_threads,
            features=tuple(features),
            cluster=cluster,
            deadline_s=deadline_s,
            version=version,
            metrics=dict(metrics or {}),
            seed=seed,
            owner=owner,
        )

    return declare if function is None else declare(function)
