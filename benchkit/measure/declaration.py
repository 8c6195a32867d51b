"""The decorator that declares a workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchkit.measure.errors import InvalidWorkloadError
from benchkit.measure.workloads import Workload

#: Groups of a run file; a metric must not have the name of a group.
RESERVED_NAMES = {
    "errors", "events", "fine", "held", "logs", "memory_samples", "profile", "scheduler", "spans",
    "submissions", "task_events", "task_groups", "tasks", "transfers", "workers",
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
    metrics: Mapping[str, str] | None = None,
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
    metrics : mapping of str to str, optional
        Names and units of metrics that the check step returns.
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
