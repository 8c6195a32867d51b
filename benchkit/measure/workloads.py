"""Declare a workload: a realistic Dask job with a check of its answer.

`@workload` makes a `Workload` of a function. A `Variant` is a workload with bound parameters: the
unit of table rows, time series and issues. This module starts no clusters and runs no workloads.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

from benchkit.measure.errors import InvalidParameterError, InvalidWorkloadError, did_you_mean
from benchkit.measure.html_table import html_table
from benchkit.measure.source import (
    constants_of,
    first_name,
    names_used,
    normalized_source,
    source_of,
)

__all__ = ["STEPS", "Variant", "Workload", "workload"]

#: The steps of a workload; only `run` is timed.
STEPS = ("prepare", "run", "check", "cleanup")
_GENERATORS = "benchkit.measure.data.random"
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
#: Arguments of a step in addition to the workload's parameters.
_ARGUMENTS = ("client", "scale", "prepared", "result", "seed")


def workload(
    function: Callable | None = None,
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
    metrics: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Any:
    """Declare that a function is a workload.

    The function is the timed step. Its arguments are passed by name: any of ``client``, ``scale``,
    ``prepared`` (result of the prepare step) and ``seed``, and its parameters as keywords. The run
    ends when the collections and futures that it returns are finished.

    Parameters
    ----------
    category : str, optional
        First part of the name; by default the name of the file.
    name : str, optional
        Second part of the name; by default the function's.
    variants : mapping of str to sequence, optional
        Values of each parameter; every combination is a variant.
    tags : iterable of str
        Words for selection; ``profile:quick`` adds it to the profile `quick`, and
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
    metrics : mapping of str to str, optional
        Names and units of metrics that the check step returns.
    seed : int, default 0
        Passed to the steps and recorded.

    Returns
    -------
    Workload or decorator

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
    taken = _GROUPS & set(metrics or ())
    if taken:
        raise InvalidWorkloadError(
            f"metrics: {', '.join(sorted(taken))} is a group of every run file: rename it"
        )

    def declare(main: Callable) -> Workload:
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
        )

    return declare if function is None else declare(function)


#: Groups of a run file; a metric must not have the name of a group.
_GROUPS = {
    "errors", "events", "fine", "logs", "profile", "scheduler", "spans", "task_events",
    "task_groups", "tasks", "transfers", "workers",
}  # fmt: skip


@dataclass(eq=False)
class Workload:
    """A declared workload; make one with `workload`."""

    main: Callable
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
    metrics: dict[str, str] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.steps: dict[str, Callable] = {}
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

    def prepare(self, function: Callable) -> Callable:
        """Decorate the untimed step that makes the input; its result is `prepared`."""
        return self._set_step("prepare", function)

    def check(self, function: Callable) -> Callable:
        """Decorate the untimed step that compares `result` with the known answer."""
        return self._set_step("check", function)

    def cleanup(self, function: Callable) -> Callable:
        """Decorate the last step, which runs after errors too."""
        return self._set_step("cleanup", function)

    def _set_step(self, step: str, function: Callable) -> Callable:
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
        """Call a step with the arguments of its signature; None if there is no such step."""
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

    def _place(self, function: Callable) -> str:
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

    def _functions(self) -> list[Callable]:
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
        """Return all combinations of parameter values; the last parameter varies fastest."""
        combinations = itertools.product(*self.parameters.values())
        return [
            Variant(self, dict(zip(self.parameters, values, strict=True)))
            for values in combinations
        ]

    def bind(self, **params: Any) -> Variant:
        """Return the variant with these values; other parameters take their first value.

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
            "file": f"{self.path}:{self.line}",
        }
        return html_table(self.name, texts.items())


@dataclass(frozen=True, eq=False)
class Variant:
    """A workload with its parameters bound."""

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

        ``quick[kind=thin]`` among the workload's tags is ``quick`` for variants of that kind.
        """
        names = []
        for tag in self.workload.tags:
            name, _, inside = tag.partition("[")
            wanted = {part.strip() for part in inside.rstrip("]").split(",") if part.strip()}
            if wanted <= {f"{key}={value}" for key, value in self.params.items()}:
                names.append(name)
        return tuple(names)

    def missing_packages(self) -> list[str]:
        """Return the required modules that cannot be imported here."""
        return [name for name in self.workload.requires if not _is_importable(name)]

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and other.name == self.name

    def __repr__(self) -> str:
        return f"<Variant {self.name}>"


def _is_importable(name: str) -> bool:
    if name in sys.modules:  # a module that replaced itself in sys.modules may have no spec
        return sys.modules[name] is not None
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
