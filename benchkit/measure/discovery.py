"""Collect workloads from folders of plain Python files, as pytest collects tests.

A file that fails to import is reported with path and line; the others are collected. Each file gets
a unique module name, so that two folders may have files of the same name. Its functions are pickled
by value, so that workers do not need the file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import cloudpickle

from benchkit.measure.arguments import as_list
from benchkit.measure.errors import InvalidSelectionError, UnknownWorkload, UsageError
from benchkit.measure.expression import matcher
from benchkit.measure.folders import workload_files
from benchkit.measure.html_table import html_table
from benchkit.measure.workloads import Variant, Workload

__all__ = ["BrokenFile", "Collection", "collect"]

ENTRY_POINTS = "benchkit.workloads"


@dataclass(frozen=True)
class BrokenFile:
    """A workload file that could not be imported.

    Parameters
    ----------
    path : str
        Path of the file, or ``entry point <name>`` of a plugin.
    line : int
        Line that raised the error; 0 if unknown.
    reason : str
        Class and message of the error.
    """

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass
class Collection:
    """Collected workloads, and the files that could not be imported.

    Parameters
    ----------
    workloads : dict of str to Workload
        By name, in the order of their files.
    broken : list of BrokenFile
        Files without workloads because of an error.
    shipped : set of str
        Names of the workloads that come with benchkit, next to those of the user.
    """

    workloads: dict[str, Workload] = field(default_factory=dict)
    broken: list[BrokenFile] = field(default_factory=list)
    shipped: set[str] = field(default_factory=set)

    def _repr_html_(self) -> str:
        rows: list[tuple[str, int | str, str]] = [
            (name, len(item.variants()), item.description.partition("\n")[0] or "-")
            for name, item in self.workloads.items()
        ]
        rows += [(f"{file.path}:{file.line}", "broken", file.reason) for file in self.broken]
        return html_table(f"{len(self.workloads)} workloads, {len(self.broken)} broken files", rows)

    def variants(self) -> list[Variant]:
        """Return all variants.

        Returns
        -------
        list of Variant
            In the order of their files.
        """
        return [variant for item in self.workloads.values() for variant in item.variants()]

    def find(self, name: str) -> list[Variant]:
        """Return the variants of a workload name, a variant name, or a glob.

        Parameters
        ----------
        name : str
            The full name of a variant, or a workload with some of its parameters in brackets,
            in any order; ``*`` matches any characters.

        Returns
        -------
        list of Variant
            At least one variant.

        Raises
        ------
        UnknownWorkload
            Nothing matches; the message has similar names.
        """
        base, _, inside = name.partition("[")
        matching = self.workloads[base].variants() if base in self.workloads else []
        matching = [v for v in matching if name == v.name] or [
            variant for variant in matching if variant.has_parameters(inside.removesuffix("]"))
        ]
        if not matching and "*" in name:
            matches = matcher(f"name:{name}")
            matching = [variant for variant in self.variants() if matches(variant)]
        if not matching:
            known = [variant.name for variant in self.variants()]
            raise UnknownWorkload(name, known if inside else [*self.workloads, *known])
        return matching

    def select(self, names: Sequence[str] = (), expression: str | None = None) -> list[Variant]:
        """Return the variants of `names` that match the expression, each once.

        Parameters
        ----------
        names : sequence of str
            See `find`; empty: all variants. Without an expression the shipped workloads are not
            selected, if there are others.
        expression : str, optional
            See `benchkit.measure.expression.matcher`.

        Returns
        -------
        list of Variant
            In the order of `names`, or of the files without `names`.

        Raises
        ------
        UnknownWorkload, InvalidSelectionError
            A name does not exist; the expression is invalid or selects nothing.
        """
        selected = [variant for name in as_list(names, "workloads") for variant in self.find(name)]
        if not names:
            selected = self.variants()
            if expression is None:
                own = [v for v in selected if v.workload.name not in self.shipped]
                selected = own or selected
        if expression is not None:
            matches = matcher(expression)
            selected = [variant for variant in selected if matches(variant)]
            if not selected:
                raise InvalidSelectionError(
                    f"-k {expression!r} selects none of {len(self.variants())} variants: "
                    "see `benchkit list workloads`"
                )
        return list(dict.fromkeys(selected))


def collect(
    folders: str | Path | Sequence[str | Path] = (), shipped: Path | None = None
) -> Collection:
    """Import the workload files of folders and of installed plugins.

    Parameters
    ----------
    folders : path or sequence of path
        Searched recursively for files that import benchkit. Files and folders whose name begins
        with ``_`` or ``.`` are skipped; workload files may import them as helpers from their own
        folder.
    shipped : path, optional
        Which of the folders is that of benchkit: a workload of another folder replaces one of the
        same name in it.

    Returns
    -------
    Collection
        Workloads and broken files.

    Raises
    ------
    UsageError
        A folder does not exist.
    """
    collection = Collection()
    for folder in as_list(folders, "workloads"):
        root = Path(folder)
        if not root.is_dir():
            raise UsageError(f"{folder}: no such folder of workloads")
        for path in workload_files(root):
            _add_file(collection, path, root == shipped)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            _add_module(collection, point.load(), f"entry point {point.name}")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            collection.broken.append(BrokenFile(f"entry point {point.name}", 0, reason))
    return collection


def _add_file(collection: Collection, path: Path, shipped: bool = False) -> None:
    try:
        module = _import_file(path.resolve())
        _add_module(collection, module, str(path), shipped)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        collection.broken.append(_broken_file(path, error))


def _import_file(path: Path) -> ModuleType:
    folder_hash = hashlib.sha256(str(path.parent).encode()).hexdigest()[:8]
    name = f"benchkit_workloads_{folder_hash}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before = set(sys.modules)
    with _importable(path.parent):
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
    cloudpickle.register_pickle_by_value(module)
    for other in set(sys.modules) - before:
        file = str(getattr(sys.modules[other], "__file__", None) or "")
        if other.startswith("_") and file.startswith(str(path.parent)):
            _rename(other, f"{name.partition('.')[0]}.{other}")
    return module


def _rename(name: str, new: str) -> None:
    """Rename a helper module next to a workload file to a name that cannot be imported.

    Otherwise pickle would store its functions by reference, which workers cannot import.
    """
    helper = sys.modules[new] = sys.modules.pop(name)
    helper.__name__ = new
    for value in vars(helper).values():
        if getattr(value, "__module__", None) == name:
            value.__module__ = new
    cloudpickle.register_pickle_by_value(helper)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _add_module(
    collection: Collection, module: ModuleType, origin: str, shipped: bool = False
) -> None:
    for value in list(vars(module).values()):
        if not isinstance(value, Workload) or value.main.__module__ != module.__name__:
            continue
        other = collection.workloads.get(value.name)
        is_replaced = shipped and value.name not in collection.shipped
        if other is value or (other is not None and is_replaced):
            continue
        if other is not None:
            place = f"{other.path}:{other.line}"
            reason = f"{value.name} is already declared in {place}: rename one of the two"
            collection.broken.append(BrokenFile(origin, value.line, reason))
            continue
        collection.workloads[value.name] = value
        if shipped:
            collection.shipped.add(value.name)


def _broken_file(path: Path, error: BaseException) -> BrokenFile:
    """Describe an import error, with the line of the file also if a library raised the error."""
    if isinstance(error, SyntaxError) and error.lineno:
        return BrokenFile(str(path), error.lineno, f"{type(error).__name__}: {error.msg}")
    line = 1
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path.resolve()):
            line = frame.lineno or line
    text = (str(error).strip().splitlines() or [""])[0]
    return BrokenFile(str(path), line, f"{type(error).__name__}: {text}".rstrip(": "))
